"""The trackers that rllm ships, announced like anybody's."""

from __future__ import annotations

from rllm.interfaces.spec import TrackerSpec

__all__ = ["TRACKERS"]

TRACKERS: tuple[TrackerSpec, ...] = (
    TrackerSpec(
        name="jsonl",
        summary="One JSON line a step, appended to a file that several runs may share",
        target="rllm.store.trackers:JsonlTracker",
        options=("path",),
    ),
)
"""In the order in which they are listed to people."""
