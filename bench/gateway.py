"""What a gateway adds to a model call: a direct call, rllm's gateway, `rllm-model-gateway` and the LiteLLM proxy.

One run, one machine, the same scripted upstream in another process. The peers live in environments of their own:

    python -m venv /tmp/rmg && /tmp/rmg/bin/pip install rllm-model-gateway
    python -m venv /tmp/litellm && /tmp/litellm/bin/pip install 'litellm[proxy]'
    .venv/bin/python bench/gateway.py --rllm-model-gateway /tmp/rmg --litellm /tmp/litellm

`latency`: the model takes 250 ms (20 ms for one client), so that clients wait for it, not for a busy machine; what is
added is the difference to the direct call. `load`: the model takes no time, every client asks again at once.
`conversation`: many sessions of 100 turns with token capture; resident memory and seconds a turn.

Prints tables and writes bench/results/gateway.json. Leave out a peer's option to leave it out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import gateway_peers as peers
from gateway_peers import Peer
from loopback_http import REPLY_IDS, USER_IDS

RESULTS = Path(__file__).parent / "results"
CLIENTS = (1, 64, 512)
CHUNKS = 50
TURNS = 100

Start = Callable[[int, int], AbstractContextManager[Peer]]


def run_load(plan: dict[str, Any]) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(plan, file)
        file.flush()
        command = [sys.executable, str(peers.HERE / "loopback_http.py"), "load", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the load generator failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def measure(start: Start, *, clients: int, stream: bool, delay_s: float, seconds: float) -> dict[str, Any]:
    with peers.upstream(delay_s, CHUNKS) as port, start(port, clients) as peer:
        plan = {"port": peer.port, "targets": peer.targets, "clients": clients, "stream": stream}
        run_load({**plan, "seconds": 1.0})
        before = peer.cpu_s()
        found = run_load({**plan, "seconds": seconds})
        cpu_s = peer.cpu_s() - before
    found["calls_per_s"] = found["calls"] / found["seconds"]
    if cpu_s:
        found["calls_per_cpu_s"] = found["calls"] / cpu_s
        found["chunks_per_cpu_s"] = found["chunks"] / cpu_s
    return found


def converse(start: Start, sessions: int) -> dict[str, Any]:
    """Memory and time of many long conversations."""
    with peers.upstream(0.0, CHUNKS) as port, start(port, sessions + 8) as peer:
        plan = {"port": peer.port, "clients": 8, "turns": TURNS}
        run_load({**plan, "targets": peer.targets[sessions:] or peer.targets})
        before, cpu_s = peer.resident_bytes(), peer.cpu_s()
        found = run_load(
            {**plan, "targets": peer.targets[:sessions] if len(peer.targets) > 1 else peer.targets * sessions}
        )
        grown = peer.resident_bytes() - before
        cpu_s = peer.cpu_s() - cpu_s
    tokens = sessions * TURNS * (USER_IDS + REPLY_IDS)
    turns = found["turn_ms"]
    return {
        "sessions": sessions,
        "tokens": tokens,
        "bytes_per_token": grown / tokens,
        "bytes_per_session": grown / sessions,
        "cpu_ms_per_turn": 1e3 * cpu_s / (sessions * TURNS),
        "turn_ms": {str(at): sum(turns[at - 5 : at]) / 5 for at in (10, 50, 100)},
        "client_bytes": {str(at): found["turn_bytes"][at - 1] for at in (10, 50, 100)},
    }


def table(title: str, rows: dict[str, dict[str, Any]], columns: dict[str, str]) -> None:
    print(f"\n{title}")
    print(f"{'':22}" + "".join(f"{text:>18}" for text in columns.values()))
    for name, row in rows.items():
        print(f"{name:22}" + "".join(f"{row[key]:>18,.2f}" if key in row else f"{'–':>18}" for key in columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rllm-model-gateway", type=Path, help="environment that holds it")
    parser.add_argument("--litellm", type=Path, help="environment that holds litellm[proxy]")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--sessions", type=int, default=40, help="conversations of 100 turns")
    parser.add_argument("--only", choices=("latency", "load", "conversation"), help="one part")
    options = parser.parse_args()
    starts: dict[str, Start] = {"direct": peers.direct, "rllm": peers.ours}
    if options.rllm_model_gateway:
        starts["rllm-model-gateway"] = partial(peers.rllm_model_gateway, options.rllm_model_gateway)
    if options.litellm:
        starts["litellm proxy"] = partial(peers.litellm, options.litellm)
    results: dict[str, Any] = {}
    for part, delay_s in (("latency", 0.25), ("load", 0.0)):
        if options.only not in (None, part):
            continue
        for clients in CLIENTS:
            for stream in (False, True):
                delay = 0.02 if delay_s and clients == 1 else delay_s
                rows = {
                    name: measure(start, clients=clients, stream=stream, delay_s=delay, seconds=options.seconds)
                    for name, start in starts.items()
                }
                for row in rows.values():
                    row["added_p50_ms"] = row["p50_ms"] - rows["direct"]["p50_ms"]
                    row["added_p99_ms"] = row["p99_ms"] - rows["direct"]["p99_ms"]
                results[f"{part} {clients} {'stream' if stream else 'whole'}"] = rows
                columns = {"p50_ms": "p50 ms", "added_p50_ms": "added p50 ms", "added_p99_ms": "added p99 ms"}
                if part == "load":
                    columns = {"calls_per_s": "calls/s", "calls_per_cpu_s": "calls/s per core", "p50_ms": "p50 ms"}
                    if stream:
                        columns["chunks_per_cpu_s"] = "chunks/s per core"
                table(f"{part}, {clients} clients, {'streaming' if stream else 'not streaming'}", rows, columns)
    if options.only in (None, "conversation"):
        rows = {name: converse(start, options.sessions) for name, start in starts.items() if name != "direct"}
        results["conversation"] = rows
        columns = {
            "bytes_per_token": "bytes/token",
            "bytes_per_session": "bytes/session",
            "cpu_ms_per_turn": "CPU ms/turn",
        }
        table(f"{options.sessions} sessions of {TURNS} turns", rows, columns)
        for name, row in rows.items():
            print(f"{name:22}" + "  ".join(f"turn {at}: {value:.2f} ms" for at, value in row["turn_ms"].items()))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "gateway.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
