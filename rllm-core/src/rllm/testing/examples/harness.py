"""An agent program that asks the model once."""

from __future__ import annotations

import aiohttp

from rllm.errors import AgentError
from rllm.interfaces.harness import FlowResult
from rllm.interfaces.sandbox import Sandbox
from rllm.types import AgentConfig, Task

__all__ = ["ExampleHarness"]


class ExampleHarness:
    """One chat completion with the instruction as the only message; the reply is the answer."""

    async def run(self, task: Task, config: AgentConfig, env: Sandbox | None) -> FlowResult:
        """Attempt the task. Returns None: the framework builds the episode from the captured call."""
        request = {"model": config.model, "messages": [{"role": "user", "content": task.instruction}]}
        headers = {"Authorization": f"Bearer {config.api_key}"}
        unlimited = aiohttp.ClientTimeout(total=None)  # deadlines are the engine's
        async with (
            aiohttp.ClientSession(headers=headers, timeout=unlimited) as session,
            session.post(f"{config.base_url}/chat/completions", json=request) as response,
        ):
            text = await response.text()
            if response.status != 200:
                raise AgentError(f"the model answered with status {response.status}: {text[:500]}")
        return None
