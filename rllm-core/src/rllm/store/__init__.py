"""The run on disk: a folder that is written as things happen, survives a kill, and can be read meanwhile.

run.json        manifest: what was asked for, with which versions, and the status; replaced in one step
run.db          SQLite (WAL): episodes with their token data, metrics and events
metrics.jsonl   the metrics again, one line a step, for people and their tools
run.lock        held by the one process that writes
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllm.store.listing import RunSummary, find_run, list_runs
    from rllm.store.run import RunStore

__all__ = ["RunStore", "RunSummary", "find_run", "list_runs"]


def __getattr__(name: str) -> Any:
    """Load late, so that announcing the trackers costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("rllm.store.run" if name == "RunStore" else "rllm.store.listing"), name)
