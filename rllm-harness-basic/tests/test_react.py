from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rllm.errors import ConfigError, RequestError
from rllm.interfaces.harness import Closable
from rllm.interfaces.sandbox import Sandbox
from rllm.testing import HarnessConformance
from rllm.types import AgentConfig, Task
from rllm_harness_basic.react import React


async def test_the_instruction_goes_to_the_model_in_one_call_with_the_sessions_key(server: Any) -> None:
    react = React()
    await react.run(Task(id="t", instruction="What is 3 + 4?"), server.config("key-1"), None)
    await react.close()
    assert server.requests == [
        (
            "/sessions/s1/v1/chat/completions",
            "Bearer key-1",
            {"model": "tiny", "messages": [{"role": "user", "content": "What is 3 + 4?"}]},
        )
    ]


async def test_content_blocks_go_as_they_are_and_a_system_prompt_goes_first(server: Any) -> None:
    blocks = [{"type": "text", "text": "Wie viel ist 3 × 4? 😀"}]
    react = React(system_prompt="Be brief.")
    await react.run(Task(id="t", instruction=blocks), server.config(), None)
    await react.run(Task(id="u", instruction="again"), server.config(), None)
    await react.close()
    first, second = (body["messages"] for _, _, body in server.requests)
    assert first == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": blocks}]
    assert second == [first[0], {"role": "user", "content": "again"}]


async def test_the_agent_never_sees_or_sends_the_reference(server: Any) -> None:
    react = React()
    task = Task(id="t", instruction="i", reference={"answer": "hidden gold"}, metadata={"note": "not sent"})
    await react.run(task, server.config(), None)
    await react.close()
    assert "hidden" not in str(server.requests)
    assert "not sent" not in str(server.requests)


async def test_a_failed_call_leaves_the_agent_usable(server: Any) -> None:
    react = React()
    server.status, server.body = 400, "{}"
    with pytest.raises(RequestError):
        await react.run(Task(id="t", instruction="i"), server.config(), None)
    server.status = 200
    await react.run(Task(id="t", instruction="i"), server.config(), None)
    await react.close()
    assert len(server.requests) == 2


def test_a_system_prompt_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="system_prompt=5 must be text"):
        React(system_prompt=5)  # type: ignore[arg-type]


class ClosedAtTheEnd(React):
    """Closes when its event loop ends, as the engine would after the last rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.guard = self.until_the_end()

    async def until_the_end(self) -> AsyncIterator[None]:
        try:
            while True:
                yield
        finally:
            await self.close()

    async def run(self, task: Task, config: AgentConfig, env: Sandbox | None) -> None:
        await anext(self.guard)
        await super().run(task, config, env)


class TestConformance(HarnessConformance):
    @pytest.fixture
    def make_harness(self) -> Callable[[], React]:
        return ClosedAtTheEnd


def test_the_engine_can_tell_that_it_must_be_closed() -> None:
    assert isinstance(React(), Closable)
