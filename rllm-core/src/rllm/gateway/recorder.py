"""Where calls and errors go besides the session that they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rllm.types import CapturedCall

__all__ = ["CallError", "Recorder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallError:
    """A request that got no reply. Never a call, never training data."""

    role: str
    status: int
    """HTTP status that the agent saw; 499 when it had gone."""
    code: str
    message: str
    at: float
    """Unix seconds."""
    is_upstream: bool
    """The model server's fault rather than the request's."""


class Recorder(Protocol):
    """Told of everything a session sees, in the event loop, before the agent gets its answer."""

    def record(self, session_id: str, call: CapturedCall) -> None:
        """One complete call. Must return at once; a slow store queues."""
        ...

    def record_error(self, session_id: str, error: CallError) -> None: ...
