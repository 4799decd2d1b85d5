"""What a user's module would hold: an agent, an evaluator and tasks, for the tests of the trainer."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

import aiohttp

import rllm
from rllm.interfaces.grader import Grader
from rllm.types import AgentConfig, Episode, EvalOutput, Task, Trajectory

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


def plain(task: Task, config: AgentConfig) -> None:
    """A flow without a decorator."""


class Sulking:
    """A tracker that cannot bear anything."""

    told: ClassVar[list[str]] = []

    def start(self, run_id: str, config: object) -> None:
        self.told.append("start")
        raise OSError("no network")

    def log(self, step: int, metrics: object) -> None:
        self.told.append(f"log {step}")
        raise OSError("no network")

    def finish(self, *, failed: bool) -> None:
        self.told.append(f"finish {failed}")
        raise OSError("no network")


@rllm.rollout
async def nothing(task: Task, config: AgentConfig) -> Trajectory:
    return Trajectory()


class Twins:
    """A benchmark that breaks its promise of unique ids."""

    revision = "1"

    def tasks(self, split: str, *, limit: int | None = None, seed: int = 0) -> Sequence[Task]:
        return [Task(id="same", instruction="a"), Task(id="same", instruction="b")]

    @property
    def grader(self) -> Grader:
        return self  # type: ignore[return-value]  # it grades itself

    def grade(self, task: Task, episode: Episode) -> EvalOutput:
        return EvalOutput(reward=0.0)
