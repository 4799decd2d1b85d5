"""A place where an agent's commands run. The full contract arrives with the sandbox packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["ExecResult", "Sandbox"]


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command did."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool = False
    truncated: bool = False


class Sandbox(Protocol):
    """One isolated environment."""

    async def exec(self, command: str, *, timeout_s: float) -> ExecResult:
        """Run a shell command; a timeout kills its whole process tree and is reported, not raised."""
        ...

    async def close(self) -> None:
        """Destroy it; idempotent."""
        ...
