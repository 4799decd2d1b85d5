"""What every tracker promises."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from rllm.interfaces.tracker import Tracker
from rllm.testing.promise import Kit, fill_in

__all__ = ["TrackerConformance"]

MakeTracker = Callable[[], Tracker]


class TrackerConformance(Kit):
    """Subclass it and return, from the fixture `make_tracker`, a function that makes a fresh tracker."""

    @pytest.fixture
    def make_tracker(self) -> MakeTracker:
        """Makes the tracker under test, one for each run."""
        fill_in("make_tracker", "TrackerConformance", "a function that makes the tracker")

    def test_follows_a_run_from_start_to_finish(self, make_tracker: MakeTracker) -> None:
        tracker = make_tracker()
        tracker.start("run_1", {"seed": 0, "algorithm": {"estimator": "grpo"}})
        for step in range(3):
            tracker.log(step, {"reward": 0.5 * step, "loss": -1.0})
        tracker.finish(failed=False)

    def test_takes_numbers_that_are_not_finite(self, make_tracker: MakeTracker) -> None:
        tracker = make_tracker()
        tracker.start("run_1", {})
        tracker.log(0, {"loss": math.nan, "norm": math.inf, "low": -math.inf})
        tracker.finish(failed=False)

    def test_takes_metrics_that_come_and_go(self, make_tracker: MakeTracker) -> None:
        tracker = make_tracker()
        tracker.start("run_1", {})
        for step, metrics in enumerate(({"a": 1.0}, {}, {"b/c": 2.0}, {"a": 1.0, "d e": 3.0})):
            tracker.log(step, metrics)
        tracker.finish(failed=False)

    def test_takes_several_logs_of_one_step(self, make_tracker: MakeTracker) -> None:
        tracker = make_tracker()
        tracker.start("run_1", {})
        tracker.log(4, {"train/reward": 1.0})
        tracker.log(4, {"validation/accuracy": 0.5})
        tracker.finish(failed=False)

    def test_finishes_a_run_that_failed_before_its_first_step(self, make_tracker: MakeTracker) -> None:
        tracker = make_tracker()
        tracker.start("run_1", {})
        tracker.finish(failed=True)

    def test_leaves_what_it_is_given_alone(self, make_tracker: MakeTracker) -> None:
        tracker = make_tracker()
        config, metrics = {"seed": 0}, {"reward": 1.0}
        tracker.start("run_1", config)
        tracker.log(0, metrics)
        tracker.finish(failed=False)
        assert config == {"seed": 0}, f"the tracker changed the configuration to {config!r}"
        assert metrics == {"reward": 1.0}, f"the tracker changed the metrics to {metrics!r}"

    def test_tells_two_runs_apart(self, make_tracker: MakeTracker) -> None:
        first, second = make_tracker(), make_tracker()
        first.start("run_1", {})
        second.start("run_2", {})
        first.log(0, {"reward": 1.0})
        second.log(0, {"reward": 2.0})
        first.finish(failed=False)
        second.log(1, {"reward": 3.0})
        second.finish(failed=False)
