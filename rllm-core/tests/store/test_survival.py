"""Whatever was acknowledged survives SIGKILL and a full disk, and can be read and resumed afterwards."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rllm.store import RunStore, list_runs

WRITE_FOREVER = """
import sys
from pathlib import Path
from rllm.store import RunStore
from rllm.types import CapturedCall, Episode, EpisodeStatus, Step, Trajectory

path, resume = Path(sys.argv[1]), sys.argv[2] == "resume"
run = RunStore.open(path, write=True) if resume else RunStore.create(path, kind="eval", name="killed", manifest={})
run.set_status("running")
print(run.path, flush=True)
done = len(run.finished("eval"))
while True:
    call = CapturedCall(response_ids=[done] * 50, logprobs=[-0.5] * 50, weight_versions=[0] * 50)
    steps = [Step(call=call)]
    run.add_episode(
        Episode(task_id=f"t:{done}", status=EpisodeStatus.GRADED, trajectories=[Trajectory(steps=steps)]),
        step=None, split="eval",
    )
    run.add_metrics(done, {"n": float(done)})
    done += 1
    if done % 7 == 0:
        run.flush()
        print(done, flush=True)
"""

FILL_THE_DISK = """
import json, resource, sys
from pathlib import Path
from rllm.errors import StoreError
from rllm.store import RunStore
from rllm.types import Episode, EpisodeStatus

run = RunStore.create(Path(sys.argv[1]), kind="eval", name="full", manifest={})
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
acknowledged, message = 0, ""
try:
    for number in range(100_000):
        run.add_episode(
            Episode(task_id=str(number), status=EpisodeStatus.GRADED, metadata={"text": "x" * 500}),
            step=None, split="eval",
        )
        run.flush()
        acknowledged = number + 1
except StoreError as error:
    message = str(error)
try:
    run.set_status("failed")
    run.close()
    print(json.dumps({"path": str(run.path), "acknowledged": acknowledged, "message": message}))
except StoreError as error:
    print(json.dumps({"second": str(error)}))
"""


def run_until_killed(target: Path, mode: str, after_s: float) -> tuple[Path, int]:
    """Start a writer, kill it at some instant, and tell where it wrote and how much it had been promised."""
    command = [sys.executable, "-c", WRITE_FOREVER, str(target), mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        promised = [line for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    return path, int(promised[-1]) if promised else 0


def test_whatever_was_flushed_survives_sigkill_at_any_instant(tmp_path: Path) -> None:
    """I7: and a resumed run goes on from there, with each attempt stored once."""
    instants = random.Random(7)
    path, promised = run_until_killed(tmp_path, "create", 0.2)
    for _ in range(6):
        run = RunStore.open(path)
        stored = list(run.episodes(split="eval"))
        assert len(stored) >= promised
        assert [each.task_id for each in stored] == [f"t:{number}" for number in range(len(stored))]
        assert all(each.trajectories[0].steps[0].response_ids.tolist() == [n] * 50 for n, each in enumerate(stored))
        assert len(run.metrics()) >= promised
        assert list_runs(tmp_path)[0].status == "killed"
        _, promised = run_until_killed(path, "resume", instants.uniform(0.01, 0.3))
    lines = (path / "metrics.jsonl").read_text().split("\n")[:-1]
    assert all(json.loads(line)["kind"] == "train" for line in lines)


def test_a_full_disk_is_one_clear_error_and_what_was_stored_stays_readable(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILL_THE_DISK, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(result.stdout)
    assert "second" not in report
    assert report["message"].startswith("cannot write run ")
    assert "what was stored before is intact" in report["message"]
    assert "\n" not in report["message"]
    assert report["acknowledged"] > 10
    path = Path(report["path"])
    stored = list(RunStore.open(path).episodes())
    assert len(stored) >= report["acknowledged"]
    assert RunStore.open(path).manifest["status"] == "failed"
    with RunStore.open(path, write=True) as resumed:
        assert len(resumed.finished("eval")) == len(stored)
        resumed.add_metrics(1, {"a": 1.0})


def test_no_space_at_all_is_one_clear_error(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from rllm.errors import StoreError
from rllm.store import RunStore
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    RunStore.create(Path(sys.argv[1]), kind="eval", name="full", manifest={})
except StoreError as error:
    print(error)
"""
    for limit in (0, 100, 5000, 20_000):
        command = [sys.executable, "-c", code, str(tmp_path), str(limit)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        assert result.stdout.startswith("cannot "), (limit, result)
        assert result.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("crash", ["import os; os._exit(1)", "raise SystemExit(3)", "1 / 0"])
def test_a_process_that_ends_without_closing_frees_the_run(tmp_path: Path, crash: str) -> None:
    code = "import sys; from pathlib import Path; from rllm.store import RunStore\n"
    code += "run = RunStore.create(Path(sys.argv[1]), kind='eval', name='x', manifest={})\n"
    code += f"run.add_metrics(1, {{'a': 1.0}}); run.flush()\n{crash}"
    command = [sys.executable, "-c", code, str(tmp_path)]
    subprocess.run(command, capture_output=True, check=False, timeout=60)
    (path,) = tmp_path.iterdir()
    with RunStore.open(path, write=True) as run:
        assert run.metrics() == [{"step": 1, "a": 1.0}]
