"""What `./quickstart` shows: the embedded model learns, by the numbers of `rllm eval` before and after."""

from typing import Any

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_held_out_accuracy_rises_by_25_points(rllm: Any, seed: int) -> None:
    before = rllm.json("eval", "countdown", "--model", f"embedded:{seed}")
    train = rllm.json("train", "countdown", "--model", f"embedded:{seed}", "--seed", str(seed))
    after = rllm.json("eval", "countdown", "--model", f"run:{train['run']}")
    assert before["graded"] == after["graded"] == 200
    assert before["accuracy"] > 0.1
    assert after["accuracy"] >= before["accuracy"] + 0.25
    listed = rllm.json("runs", "list")
    assert [run["kind"] for run in listed] == ["eval", "train", "eval"]
    assert {run["status"] for run in listed} == {"finished"}
