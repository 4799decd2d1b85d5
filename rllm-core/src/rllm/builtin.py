"""The core's own plugin: what it ships comes in through the same hooks as anybody's."""

from __future__ import annotations

from collections.abc import Iterable

from rllm.algorithms.specs import ALGORITHMS
from rllm.hookspecs import hookimpl
from rllm.interfaces.spec import AlgorithmSpec, TrackerSpec
from rllm.store.specs import TRACKERS

__all__ = ["rllm_algorithms", "rllm_trackers"]


@hookimpl
def rllm_algorithms() -> Iterable[AlgorithmSpec]:
    """The advantage estimators of `rllm.algorithms`."""
    return ALGORITHMS


@hookimpl
def rllm_trackers() -> Iterable[TrackerSpec]:
    """The metrics sinks of `rllm.store`."""
    return TRACKERS
