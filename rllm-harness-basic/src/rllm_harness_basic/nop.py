"""The agent that does nothing."""

from __future__ import annotations

from rllm.interfaces.sandbox import Sandbox
from rllm.types import AgentConfig, Task

__all__ = ["Nop"]


class Nop:
    """Makes no call and leaves everything as it is."""

    async def run(self, task: Task, config: AgentConfig, env: Sandbox | None) -> None:
        """Return at once."""
