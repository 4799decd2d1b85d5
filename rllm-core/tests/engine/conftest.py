import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from rllm.engine.functions import as_grader, as_harness
from rllm.engine.rollout import Limits, Program, RolloutRequest, run_rollout
from rllm.gateway import Gateway, MessageUpstream
from rllm.testing import ScriptedModelServer
from rllm.types import AgentConfig, Episode, Task

Flow = Callable[..., Any]


async def ask(config: AgentConfig, text: str = "go") -> str:
    """One chat completion as any client would make it."""
    body = {"model": config.model, "messages": [{"role": "user", "content": text}]}
    headers = {"Authorization": f"Bearer {config.api_key}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{config.base_url}/chat/completions", json=body, headers=headers) as response,
    ):
        response.raise_for_status()
        return str((await response.json())["choices"][0]["message"]["content"])


class Bench:
    """A scripted model behind a gateway, and rollouts against it."""

    def __init__(self, server: ScriptedModelServer, gateway: Gateway) -> None:
        self.server = server
        self.gateway = gateway

    async def run(self, flow: Flow, grader: Flow | None = None, *, task: Task | None = None, **limits: Any) -> Episode:
        program = Program(as_harness(flow), as_grader(grader or (lambda task, episode: 1.0)), "probe")
        request = RolloutRequest(task=task or Task(id="t:1", instruction="go"), attempt=3, seed=0)
        limit = Limits(**{"backoff_s": 0.001, "max_retries": 0, "timeout_s": 10.0, **limits})
        return await asyncio.wait_for(run_rollout(program, request, self.gateway, limit), 10)


@pytest.fixture
def scripted() -> Callable[..., AbstractAsyncContextManager[Bench]]:
    """`async with scripted(["reply"]) as bench:`; keywords are those of ScriptedModelServer."""

    @asynccontextmanager
    async def make(*args: Any, **settings: Any) -> AsyncIterator[Bench]:
        async with ScriptedModelServer(*args, **settings) as server:
            upstream = MessageUpstream(server.base_url("up"), "m")
            async with Gateway(upstream) as gateway:
                yield Bench(server, gateway)

    return make


@pytest.fixture
def ask_model() -> Callable[..., Any]:
    return ask
