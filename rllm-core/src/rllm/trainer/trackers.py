"""Telling the run's trackers. One that fails is reported once, and the run goes on without noticing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from rllm.errors import PluginError, RllmError, boundary, one_line
from rllm.interfaces.tracker import Tracker

__all__ = ["Trackers"]

logger = logging.getLogger(__name__)


class Trackers:
    """Several trackers as one that never raises."""

    def __init__(self, named: Iterable[tuple[str, Tracker]]) -> None:
        self._named = list(named)
        self._failed: set[str] = set()

    def start(self, run_id: str, config: Mapping[str, object]) -> None:
        self._tell(lambda tracker: tracker.start(run_id, config))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._tell(lambda tracker: tracker.log(step, metrics))

    def finish(self, *, failed: bool) -> None:
        self._tell(lambda tracker: tracker.finish(failed=failed))

    def _tell(self, action: Callable[[Tracker], None]) -> None:
        for name, tracker in self._named:
            try:
                with boundary(PluginError, f"tracker {name!r}"):
                    action(tracker)
            except RllmError as error:
                if name not in self._failed:
                    self._failed.add(name)
                    logger.warning("ignored a failure, and any further one: %s", one_line(error))
