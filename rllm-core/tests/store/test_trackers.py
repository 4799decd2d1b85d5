"""The JSONL tracker: valid lines, in a file that runs may share."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path

import pytest

from rllm.interfaces.tracker import Tracker
from rllm.store.specs import TRACKERS
from rllm.store.trackers import JsonlTracker


def test_every_line_is_json_and_names_its_run(tmp_path: Path) -> None:
    tracker: Tracker = JsonlTracker(path=str(tmp_path / "deep" / "m.jsonl"))
    tracker.start("run-1", {"trainer": {"steps": 2}})
    tracker.log(1, {"loss": 0.5, "kl": math.nan})
    tracker.finish(failed=False)
    lines = [
        json.loads(line, parse_constant=pytest.fail)
        for line in (tmp_path / "deep" / "m.jsonl").read_text().splitlines()
    ]
    assert lines == [
        {"run": "run-1", "kind": "start", "config": {"trainer": {"steps": 2}}},
        {"run": "run-1", "kind": "train", "step": 1, "loss": 0.5, "kl": "NaN"},
        {"run": "run-1", "kind": "finish", "failed": False},
    ]


def test_a_torn_line_of_an_earlier_run_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"run": "a"}\n{"run": "a", "st')
    JsonlTracker(path=str(path)).start("b", {})
    assert [json.loads(line)["run"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_the_announced_trackers_take_the_options_that_they_name() -> None:
    for spec in TRACKERS:
        module, _, name = spec.target.partition(":")
        target = getattr(importlib.import_module(module), name)
        target(**dict.fromkeys(spec.options, "x"))
