"""Where calls and errors go besides the session that they belong to."""

from __future__ import annotations

from typing import Protocol

from rllm.types import CallError, CapturedCall

__all__ = ["Recorder"]


class Recorder(Protocol):
    """Told of everything a session sees, in the event loop, before the agent gets the end of its answer."""

    def record(self, session_id: str, call: CapturedCall) -> None:
        """One complete call. Must return at once; a slow store queues."""
        ...

    def record_error(self, session_id: str, error: CallError) -> None: ...

    async def settled(self) -> None:
        """Returns once everything told so far survives the death of this process. Raises `StoreError`."""
        ...
