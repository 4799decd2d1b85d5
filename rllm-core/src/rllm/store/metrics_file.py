"""`metrics.jsonl`: the metrics for people and their tools, one line a step. The database is what rllm reads."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["FILE", "mend", "metrics_line"]

logger = logging.getLogger(__name__)

FILE = "metrics.jsonl"


def metrics_line(kind: str, step: int, metrics: Mapping[str, float]) -> str:
    """One line of valid JSON; NaN and infinities are the strings `NaN`, `Infinity` and `-Infinity`."""
    numbers = {name: value if math.isfinite(value) else _name(value) for name, value in metrics.items()}
    return json.dumps({"kind": kind, "step": step, **numbers}, ensure_ascii=False) + "\n"


def _name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def mend(path: Path) -> None:
    """Cut off a last line that a kill or a power cut left incomplete, so that the next one starts on its own."""
    try:
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            end = _last_newline(path)
            if end < size:
                logger.warning("%s: the last line was incomplete and has been dropped", path)
                file.truncate(end)
    except FileNotFoundError:
        return


def _last_newline(path: Path) -> int:
    """Offset after the last newline."""
    return path.read_bytes().rfind(b"\n") + 1
