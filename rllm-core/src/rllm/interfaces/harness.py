"""An agent program: whatever turns a task into model calls."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from rllm.interfaces.sandbox import Sandbox
from rllm.types import AgentConfig, Episode, Task, Trajectory

__all__ = ["Closable", "FlowResult", "Harness"]

FlowResult = None | Episode | Trajectory | list[Trajectory]
"""None lets the framework build everything from the captured calls."""


class Harness(Protocol):
    """Runs one agent on one task, talking to the model at `config.base_url`."""

    async def run(self, task: Task, config: AgentConfig, env: Sandbox | None) -> FlowResult:
        """Attempt the task. `env` is None unless the spec says `needs_sandbox`.

        May raise anything: it is recorded as the agent's error. Cancellation must end every call in flight.
        """
        ...


@runtime_checkable
class Closable(Protocol):
    """A harness that holds something open, such as connections."""

    async def close(self) -> None:
        """Called once, in the same event loop, after the last rollout."""
        ...
