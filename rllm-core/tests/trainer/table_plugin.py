"""What a user's module would hold: an agent, an evaluator and tasks, for the tests of the trainer."""

import asyncio

import aiohttp

import rllm
from rllm.types import AgentConfig, Episode, Task

TASKS = [{"id": f"t:{i}/x", "question": f"say {i}"} for i in range(6)]


@rllm.rollout
async def ask(task: Task, config: AgentConfig) -> None:
    body = {"model": config.model, "messages": [{"role": "user", "content": task.instruction}]}
    headers = {"Authorization": f"Bearer {config.api_key}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{config.base_url}/chat/completions", json=body, headers=headers) as response,
    ):
        response.raise_for_status()
        await response.json()


@rllm.evaluator
def digits(task: Task, episode: Episode) -> float:
    text = episode.final_text()
    return sum(c.isdigit() for c in text) / max(1, len(text))


@rllm.evaluator
def constant(task: Task, episode: Episode) -> float:
    return 0.0


@rllm.evaluator
def broken(task: Task, episode: Episode) -> float:
    raise ValueError("no idea")


@rllm.rollout
async def slow(task: Task, config: AgentConfig) -> None:
    await asyncio.sleep(60)
