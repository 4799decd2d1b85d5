"""A metrics sink: one JSON object a line, in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ExampleTracker"]


class ExampleTracker:
    """Appends to `path`; what is not finite is written as text, because JSON has no such numbers."""

    def __init__(self, *, path: str = "metrics.jsonl") -> None:
        self.path = Path(path)

    def start(self, run_id: str, config: Mapping[str, object]) -> None:
        """Write the run's id and configuration."""
        self._write({"run": run_id, "config": dict(config)})

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one step's numbers."""
        numbers = {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()}
        self._write({"step": step, "metrics": numbers})

    def finish(self, *, failed: bool) -> None:
        """Write how the run ended."""
        self._write({"failed": failed})

    def _write(self, record: Mapping[str, object]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, default=str) + "\n")
