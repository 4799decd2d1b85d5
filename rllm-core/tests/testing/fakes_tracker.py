"""Trackers that break one promise each."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rllm.testing import TrackerConformance
from rllm.testing.examples.tracker import ExampleTracker


class TestGood(TrackerConformance):
    class Tracker(ExampleTracker):
        pass

    @pytest.fixture
    def make_tracker(self, tmp_path: Path) -> Any:
        return lambda: self.Tracker(path=str(tmp_path / "metrics.jsonl"))


class TestFlatConfig(TestGood):
    class Tracker(ExampleTracker):
        def start(self, run_id: str, config: Any) -> None:
            if any(isinstance(value, dict) for value in config.values()):
                raise TypeError("nested")


class TestFiniteOnly(TestGood):
    class Tracker(ExampleTracker):
        def log(self, step: int, metrics: Any) -> None:
            if not all(map(math.isfinite, metrics.values())):
                raise ValueError("not finite")


class TestNeverEmpty(TestGood):
    class Tracker(ExampleTracker):
        def log(self, step: int, metrics: Any) -> None:
            if not metrics:
                raise ValueError("nothing to log")


class TestStepsGrow(TestGood):
    class Tracker(ExampleTracker):
        last = -1

        def log(self, step: int, metrics: Any) -> None:
            if step <= self.last:
                raise ValueError("step seen")
            self.last = step


class TestNeedsAStep(TestGood):
    class Tracker(ExampleTracker):
        logged = False

        def log(self, step: int, metrics: Any) -> None:
            self.logged = True

        def finish(self, *, failed: bool) -> None:
            if not self.logged:
                raise RuntimeError("nothing was logged")


class TestWritesIntoMetrics(TestGood):
    class Tracker(ExampleTracker):
        def log(self, step: int, metrics: Any) -> None:
            metrics["step"] = step


class TestOneRunOnly(TestGood):
    class Tracker(ExampleTracker):
        active: ClassVar[list[str]] = []

        def start(self, run_id: str, config: Any) -> None:
            if self.active:
                raise RuntimeError("a run is active")
            self.active.append(run_id)

        def finish(self, *, failed: bool) -> None:
            self.active.clear()
