"""Learning-rate schedules: a multiplier of the peak rate for each update. Updates are counted from 1."""

from __future__ import annotations

import math

__all__ = ["SCHEDULES", "learning_rate"]

SCHEDULES = ("constant", "cosine", "linear")


def learning_rate(schedule: str, step: int, total: int, *, warmup_steps: int = 0, min_ratio: float = 0.0) -> float:
    """Multiplier in (0, 1] for update `step` of `total`, 1 <= step <= total.

    Warm-up: step / (warmup_steps + 1) for the first `warmup_steps` updates, so the first one already moves the
    weights. After it, with D updates left in all and k = 0 … D - 1 of them done:

        constant   1
        linear     min_ratio + (1 - min_ratio) · (1 - k / D)
        cosine     min_ratio + (1 - min_ratio) · (1 + cos(π k / D)) / 2

    k / D stays below 1: the last update has a rate above the floor, never 0. Steps beyond `total` keep its rate.
    Raises ValueError for an unknown schedule or a step below 1.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"no schedule is called {schedule!r}; there are {', '.join(SCHEDULES)}")
    if step < 1:
        raise ValueError(f"updates are counted from 1, got step {step}")
    if step <= warmup_steps:
        return step / (warmup_steps + 1)
    if schedule == "constant":
        return 1.0
    length = max(1, total - warmup_steps)
    progress = min(step - warmup_steps - 1, length - 1) / length
    shape = 1 - progress if schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return min_ratio + (1 - min_ratio) * shape
