"""How each gateway of the comparison is started in front of the scripted upstream, and where its clients go."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

HERE = Path(__file__).parent

OURS = """
import asyncio, json, sys
from rllm.gateway import Gateway, GatewayConfig, MessageUpstream

async def main(upstream, port, sessions):
    model = MessageUpstream(upstream, "m", api_key="none", return_token_ids=True)
    async with Gateway(model, GatewayConfig(port=port)) as gateway:
        opened = [gateway.open_session() for _ in range(sessions)]
        targets = []
        for session in opened:
            config = session.agent_config()
            path = config.base_url.partition("127.0.0.1")[2].partition("/")[2]
            targets.append({"path": f"/{path}/chat/completions", "key": config.api_key})
        print(json.dumps(targets), flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""

LITELLM = """
model_list:
  - model_name: m
    litellm_params: {model: openai/m, api_base: "%s/v1", api_key: none}
general_settings: {master_key: sk-bench}
litellm_settings: {num_retries: 0}
"""


@dataclass
class Peer:
    """One running gateway."""

    name: str
    port: int
    targets: list[dict[str, str]]
    process: psutil.Process | None = None

    def cpu_s(self) -> float:
        """Seconds of processor time so far, of all its processes."""
        if self.process is None:
            return 0.0
        times = [each.cpu_times() for each in (self.process, *self.process.children(recursive=True))]
        return sum(each.user + each.system for each in times)

    def resident_bytes(self) -> int:
        if self.process is None:
            return 0
        return sum(each.memory_info().rss for each in (self.process, *self.process.children(recursive=True)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(command: list[str], port: int, *, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen]:
    """The process, once something listens on its port; ended with the block."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 180
        while True:
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} ended with {process.returncode} before it listened")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise SystemExit(f"{command[0]} does not listen") from None
                time.sleep(0.2)
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def upstream(delay_s: float, chunks: int) -> Iterator[int]:
    """The scripted model's port."""
    port = free_port()
    command = [sys.executable, str(HERE / "loopback_http.py"), "upstream", str(port), str(delay_s), str(chunks)]
    with started(command, port):
        yield port


@contextmanager
def direct(upstream_port: int, sessions: int) -> Iterator[Peer]:
    yield Peer("direct", upstream_port, [{"path": "/v1/chat/completions", "key": "none"}])


@contextmanager
def ours(upstream_port: int, sessions: int) -> Iterator[Peer]:
    port = free_port()
    command = [sys.executable, "-c", OURS, f"http://127.0.0.1:{upstream_port}/v1", str(port), str(sessions)]
    with started(command, port) as process:
        assert process.stdout is not None
        targets = json.loads(process.stdout.readline())
        yield Peer("rllm", port, targets, psutil.Process(process.pid))


@contextmanager
def rllm_model_gateway(venv: Path, upstream_port: int, sessions: int) -> Iterator[Peer]:
    port = free_port()
    worker = f"http://127.0.0.1:{upstream_port}/v1"
    command = [str(venv / "bin/rllm-model-gateway"), "--host", "127.0.0.1", "--port", str(port), "--worker", worker]
    with started([*command, "--store", "memory", "--log-level", "ERROR"], port) as process:
        targets = [{"path": f"/sessions/s{at}/v1/chat/completions", "key": "none"} for at in range(sessions)]
        yield Peer("rllm-model-gateway", port, targets, psutil.Process(process.pid))


@contextmanager
def litellm(venv: Path, upstream_port: int, sessions: int) -> Iterator[Peer]:
    port = free_port()
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(LITELLM % f"http://127.0.0.1:{upstream_port}")
        command = [str(venv / "bin/litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        with started(command, port, environment=environment) as process:
            targets = [{"path": "/v1/chat/completions", "key": "sk-bench"}]
            yield Peer("litellm proxy", port, targets, psutil.Process(process.pid))
