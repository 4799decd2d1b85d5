"""A metrics sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

__all__ = ["Tracker"]


class Tracker(Protocol):
    """Receives the numbers of a run. Its failure is reported once and never stops the run."""

    def start(self, run_id: str, config: Mapping[str, object]) -> None:
        """Called once, before any metrics."""
        ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Metrics of one learner step; steps never go backwards."""
        ...

    def finish(self, *, failed: bool) -> None:
        """Called once at the end, also after a failure."""
        ...
