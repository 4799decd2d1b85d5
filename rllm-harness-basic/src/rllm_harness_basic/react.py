"""The one-call agent: the task's instruction goes to the model, and the reply is the answer.

It keeps no record of its own: it returns None, and the framework builds the episode from the captured call.
Sampling parameters, retries and deadlines belong to the gateway and the engine.
"""

from __future__ import annotations

from rllm.errors import ConfigError
from rllm.interfaces.sandbox import Sandbox
from rllm.types import AgentConfig, Message, Task
from rllm_harness_basic.chat import ChatClient

__all__ = ["React"]


class React:
    """One chat completion a task. Safe for any number of concurrent runs."""

    def __init__(self, *, system_prompt: str | None = None) -> None:
        """`system_prompt`, if given, precedes the instruction. Raises `ConfigError` when it is not text."""
        if system_prompt is not None and not isinstance(system_prompt, str):
            raise ConfigError(f"react: system_prompt={system_prompt!r} must be text")
        self._opening: list[Message] = [{"role": "system", "content": system_prompt}] if system_prompt else []
        self._client = ChatClient()

    async def run(self, task: Task, config: AgentConfig, env: Sandbox | None) -> None:
        """Ask once. Raises `RequestError` for a refused request, `UpstreamError` for an unanswered one."""
        await self._client.complete(config, [*self._opening, {"role": "user", "content": task.instruction}])

    async def close(self) -> None:
        """Close this event loop's connections; idempotent, and a later run opens new ones."""
        await self._client.close()
