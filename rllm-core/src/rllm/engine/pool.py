"""Many rollouts: bounded concurrency, results as they finish, memory bounded by what is in flight."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing, contextmanager

from rllm.engine.rollout import Limits, Program, RolloutRequest, run_rollout
from rllm.gateway import Gateway
from rllm.types import Episode

__all__ = ["run_rollouts"]


async def run_rollouts(
    program: Program,
    requests: Iterable[RolloutRequest],
    gateway: Gateway,
    limits: Limits,
    *,
    concurrency: int,
) -> AsyncGenerator[Episode, None]:
    """Episodes in the order in which they finish. Closing the iterator cancels what is in flight.

    Requests are taken one at a time, when a slot is free. At most `2 * concurrency` episodes are in flight or
    wait to be consumed, so a slow consumer slows the rollouts down instead of filling the memory.
    """
    async with aclosing(_run(program, iter(requests), gateway, limits, concurrency)) as episodes:
        async for episode in episodes:
            yield episode


async def _run(
    program: Program, requests: Iterator[RolloutRequest], gateway: Gateway, limits: Limits, concurrency: int
) -> AsyncGenerator[Episode, None]:
    finished: asyncio.Queue[Episode | None] = asyncio.Queue()
    unconsumed = asyncio.Semaphore(2 * concurrency)

    async def worker() -> None:
        while True:
            await unconsumed.acquire()
            request = next(requests, None)
            if request is None:
                unconsumed.release()
                return
            finished.put_nowait(await run_rollout(program, request, gateway, limits))

    async def supervise() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(worker())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            finished.put_nowait(None)

    with _fewer_collections():
        supervisor = asyncio.create_task(supervise(), name="rollouts")
        try:
            while (episode := await finished.get()) is not None:
                yield episode
                unconsumed.release()
            await supervisor
        finally:
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)


@contextmanager
def _fewer_collections() -> Iterator[None]:
    """Let the garbage collector run a hundred times less often inside the block.

    Rollouts allocate thousands of short-lived objects that reference counting frees; looking for cycles among them
    took a fifth of the time of a training step.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 70_000), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
