"""A run that is killed or interrupted goes on as if nothing had happened, bit for bit."""

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

WORDS = [
    "train",
    "countdown",
    "trainer.steps=12",
    "trainer.tasks_per_step=8",
    "trainer.checkpoint_every=3",
    "benchmark.val_limit=16",
    "--seed",
    "5",
]


def parameters(folder: Path) -> bytes:
    (weights,) = sorted((folder / "model").resolve().glob("*.safetensors"))
    return weights.read_bytes()


def finished_steps(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.read_text().count('"train"') if path.exists() else 0


def wait_for_step(rllm: Any, process: Any, step: int) -> Path:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        for folder in rllm.runs.glob("*"):
            if finished_steps(folder) >= step:
                return Path(folder)
        time.sleep(0.02)
    raise AssertionError(f"no run reached step {step}")


@pytest.mark.slow
def test_training_is_reproducible_and_survives_sigkill_bit_for_bit(rllm: Any) -> None:
    straight = Path(json.loads(rllm.run(*WORDS, "--json")[0])["path"])
    again = Path(json.loads(rllm.run(*WORDS, "--json")[0])["path"])
    assert parameters(straight) == parameters(again)
    expected = parameters(straight)
    for path in (straight, again):
        path.rename(rllm.home / f"straight-{path.name}")
    for step in random.sample(range(1, 12), 2):
        process = rllm.start(WORDS)
        folder = wait_for_step(rllm, process, step)
        process.kill()
        process.communicate()
        rllm.run("train", "--resume", folder.name)
        assert parameters(folder) == expected, f"killed at step {step}"
        show = rllm.json("runs", "show", folder.name)
        assert show["manifest"]["status"] == "finished"
        assert show["steps"] == 12
        folder.rename(rllm.home / f"killed-{step}")


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(rllm: Any) -> None:
    process = rllm.start(["train", "countdown", "trainer.steps=500", "benchmark.val_limit=8"])
    folder = wait_for_step(rllm, process, 2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert f"rllm train --resume {folder.name}" in err
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    assert (folder / "model").resolve().is_dir()
    steps = finished_steps(folder)
    assert (folder / f"checkpoints/step-{steps:08d}").is_dir()
