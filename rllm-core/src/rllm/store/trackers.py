"""Metrics sinks that need nothing installed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rllm.store.metrics_file import mend, metrics_line

__all__ = ["JsonlTracker"]


class JsonlTracker:
    """Appends one JSON line a step to a file of one's own choice; many runs may share it, each line names its run.

    A line is in the file before `log` returns. A last line that a kill left incomplete is dropped on the next start.
    """

    def __init__(self, path: str = "rllm-metrics.jsonl") -> None:
        self._path = Path(path)
        self._run_id = ""

    def start(self, run_id: str, config: Mapping[str, object]) -> None:
        """Make the file's folder, and say which configuration the run has."""
        self._run_id = run_id
        self._path.parent.mkdir(parents=True, exist_ok=True)
        mend(self._path)
        self._append(json.dumps({"run": run_id, "kind": "start", "config": config}) + "\n")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append the step's numbers."""
        line = json.loads(metrics_line("train", step, metrics))
        self._append(json.dumps({"run": self._run_id, **line}) + "\n")

    def finish(self, *, failed: bool) -> None:
        """Append how the run ended."""
        self._append(json.dumps({"run": self._run_id, "kind": "finish", "failed": failed}) + "\n")

    def _append(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line)
