"""Many rollouts: none is lost, none is made twice, and a failure of ours is not a group of exceptions."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from rllm.engine.functions import as_grader, as_harness
from rllm.engine.pool import run_rollouts
from rllm.engine.rollout import Limits, Program, RolloutRequest
from rllm.errors import GatewayError
from rllm.types import AgentConfig, EpisodeStatus, Task


def requests(count: int, **settings: Any) -> list[RolloutRequest]:
    return [RolloutRequest(Task(id=f"t{i}", instruction="go"), 0, i, **settings) for i in range(count)]


def program(flow: Any) -> Program:
    return Program(as_harness(flow), as_grader(lambda task, episode: 1.0))


async def test_every_request_gives_one_episode_even_if_agents_cancel_themselves(scripted: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> None:
        await asyncio.sleep(0.001)
        if int(task.id[1:]) % 3 == 0:
            raise asyncio.CancelledError

    async with scripted() as bench:
        stream = run_rollouts(program(flow), requests(30), bench.gateway, Limits(), concurrency=4)
        async with aclosing(stream) as episodes:
            done = [episode async for episode in episodes]
    assert sorted(episode.task_id for episode in done) == sorted(f"t{i}" for i in range(30))
    assert sum(episode.status is EpisodeStatus.AGENT_ERROR for episode in done) == 10


async def test_a_request_that_the_gateway_refuses_is_that_error_and_not_a_group(scripted: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> None: ...

    async with scripted() as bench:
        stream = run_rollouts(program(flow), requests(3, sampling={"heat": 1}), bench.gateway, Limits(), concurrency=2)
        async with aclosing(stream) as episodes:
            with pytest.raises(GatewayError, match="heat"):
                [episode async for episode in episodes]


async def test_leaving_early_cancels_what_is_in_flight(scripted: Any) -> None:
    running = 0

    async def flow(task: Task, config: AgentConfig) -> None:
        nonlocal running
        running += 1
        try:
            await asyncio.sleep(0 if task.id == "t0" else 60)
        finally:
            running -= 1

    async with scripted() as bench:
        stream = run_rollouts(program(flow), requests(8), bench.gateway, Limits(), concurrency=4)
        async with aclosing(stream) as episodes:
            async for _ in episodes:
                break
        assert running == 0
