"""What the promises of a backend are tried with: opening it, rows sampled from it, a loss that it knows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest
from numpy.typing import NDArray

from rllm.interfaces.backend import Backend, LossSpec, OptimizerSpec, Row
from rllm.interfaces.sampler import Sample, SamplingParams
from rllm.testing.promise import Kit, fill_in

__all__ = ["BackendFixture", "MakeBackend"]

MakeBackend = Callable[[], Backend]


class BackendFixture(Kit):
    """The one fixture to fill in, and what the tests share."""

    deadline_s = 300.0
    model: str = ""
    """The smallest model that the backend opens."""
    prompt_ids: tuple[int, ...] = (11, 12, 13, 14)
    """Ids that are in the vocabulary of every model of more than a few tokens."""
    reply_tokens = 8
    """Length of the replies that the promises are tried on."""
    tolerance = 1e-4
    """Absolute, between two ways to the same log-probability."""
    optimizer = OptimizerSpec(lr=1e-3)

    @pytest.fixture
    def make_backend(self) -> MakeBackend:
        """Makes the backend under test, not yet opened; several may be open after one another."""
        fill_in("make_backend", "BackendConformance", "a function that makes the backend")

    @asynccontextmanager
    async def opened(self, make_backend: MakeBackend, *, seed: int = 5) -> AsyncIterator[Backend]:
        """A backend that has `model` open, and is closed afterwards."""
        backend = make_backend()
        try:
            await backend.open(model=self.model, seed=seed)
            yield backend
        finally:
            await backend.close()

    def prompt(self, *extra: int) -> NDArray[np.int32]:
        """Prompt ids, shape [P]."""
        return np.array([*self.prompt_ids, *extra], dtype=np.int32)

    def params(self, *, seed: int | None = 1, temperature: float = 1.0) -> SamplingParams:
        """Sampling of a short reply."""
        return SamplingParams(max_tokens=self.reply_tokens, temperature=temperature, seed=seed)

    async def sampled(self, backend: Backend, count: int, *, temperature: float = 1.0) -> list[Row]:
        """Rows as the trainer would build them: prompts of different lengths, advantages of both signs."""
        rows = []
        for index in range(count):
            prompt = self.prompt(*self.prompt_ids[: index % len(self.prompt_ids)])
            sample = await backend.sampler.sample(prompt, self.params(seed=100 + index, temperature=temperature))
            rows.append(self.row(prompt, sample, advantage=1.0 if index % 2 == 0 else -0.5, temperature=temperature))
        return rows

    def row(self, prompt: NDArray[np.int32], sample: Sample, *, advantage: float, temperature: float = 1.0) -> Row:
        """One sampled reply as a training row."""
        context = np.zeros(prompt.size)
        reply = np.ones(sample.ids.size)
        return Row(
            ids=np.concatenate([prompt, sample.ids]).astype(np.int32),
            mask=np.concatenate([context, reply]).astype(np.uint8),
            advantages=np.concatenate([context, advantage * reply]).astype(np.float32),
            logprobs=np.concatenate([context, sample.logprobs]).astype(np.float32),
            versions=np.concatenate([context - 1, sample.versions]).astype(np.int32),
            temperature=temperature,
            episode_id=f"kit-{prompt.size}",
        )

    def loss(self, backend: Backend) -> LossSpec:
        """A loss that the backend says it knows, the plainest one if it has a choice."""
        losses, ways = backend.capabilities.losses, backend.capabilities.aggregations
        name = "policy_gradient" if "policy_gradient" in losses else min(losses)
        return LossSpec(name=name, aggregation="token-mean" if "token-mean" in ways else min(ways))

    def same(self, a: Sequence[NDArray[np.float32]], b: Sequence[NDArray[np.float32]]) -> bool:
        """Whether two lists of arrays are equal bit for bit."""
        return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))

    def apart(self, a: Sequence[NDArray[np.float32]], b: Sequence[NDArray[np.float32]]) -> float:
        """Largest difference between two lists of arrays of the same shapes."""
        return max(float(np.abs(x - y).max()) for x, y in zip(a, b, strict=True))
