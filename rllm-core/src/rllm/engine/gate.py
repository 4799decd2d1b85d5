"""The gate of `gateway.max_inexact`: a run that shall be exact stops as soon as it is not."""

from __future__ import annotations

from rllm.errors import GatewayError
from rllm.types import Episode

__all__ = ["InexactGate"]


class InexactGate:
    """Counts calls with inexact tokens, over a whole run. Without a limit it only counts."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.seen = 0

    def add(self, calls: float) -> None:
        """Count so many more. Raises `GatewayError` once there are more than the limit."""
        self.seen += int(calls)
        if self.limit is not None and self.seen > self.limit:
            raise GatewayError(
                f"{self.seen} calls had inexact tokens, and gateway.max_inexact={self.limit} allows no more; find out "
                "which from their exactness in the run, or raise the limit"
            )

    def check(self, episode: Episode) -> None:
        """Count the calls of an episode that has ended."""
        self.add(episode.metrics.get("calls_inexact", 0.0))
