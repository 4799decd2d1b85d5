"""Backends that break one promise each."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rllm.errors import BackendError, ContextOverflow
from rllm.testing import BackendConformance
from rllm.testing.examples.backend import CONTEXT, ExampleBackend, ExampleSampler
from rllm.types import FinishReason


class TestGood(BackendConformance):
    model = "bigram"
    cancel_s = 20.0

    class Sampler(ExampleSampler):
        pass

    class Backend(ExampleBackend):
        sampler_class: Any = ExampleSampler

        async def open(self, **options: Any) -> Any:
            info = await super().open(**options)
            self._sampler = self.sampler_class(self._sampler.table, 0)
            return info

    @pytest.fixture
    def make_backend(self) -> Any:
        class Made(self.Backend):  # type: ignore[name-defined,misc]  # the class that the fake overrides
            sampler_class = self.Sampler

        return Made


class TestDoublePrecision(TestGood):
    class Sampler(ExampleSampler):
        async def sample(self, prompt_ids: Any, params: Any, *, on_delta: Any = None) -> Any:
            found = await super().sample(prompt_ids, params, on_delta=on_delta)
            return dataclasses.replace(found, logprobs=found.logprobs.astype(np.float64))


class TestSeedsCollide(TestGood):
    class Sampler(ExampleSampler):
        active = 0

        async def sample(self, prompt_ids: Any, params: Any, *, on_delta: Any = None) -> Any:
            self.active += 1
            await asyncio.sleep(0)
            if self.active > 1:
                params = dataclasses.replace(params, seed=None)
            try:
                return await super().sample(prompt_ids, params, on_delta=on_delta)
            finally:
                self.active -= 1


class TestOneSeed(TestGood):
    class Sampler(ExampleSampler):
        async def sample(self, prompt_ids: Any, params: Any, *, on_delta: Any = None) -> Any:
            seed = None if params.seed is None else 0
            return await super().sample(prompt_ids, dataclasses.replace(params, seed=seed), on_delta=on_delta)


class TestStale(TestGood):
    class Sampler(ExampleSampler):
        async def sample(self, prompt_ids: Any, params: Any, *, on_delta: Any = None) -> Any:
            seed = 0 if params.seed is None else params.seed
            return await super().sample(prompt_ids, dataclasses.replace(params, seed=seed), on_delta=on_delta)


class TestNeverGreedy(TestGood):
    class Sampler(ExampleSampler):
        async def sample(self, prompt_ids: Any, params: Any, *, on_delta: Any = None) -> Any:
            if params.temperature == 0 and params.seed is not None:
                params = dataclasses.replace(params, temperature=1.0)
            return await super().sample(prompt_ids, params, on_delta=on_delta)


class TestMumbles(TestGood):
    class Sampler(ExampleSampler):
        async def sample(self, prompt_ids: Any, params: Any, *, on_delta: Any = None) -> Any:
            found = await super().sample(prompt_ids, params)
            if on_delta is not None:
                on_delta(found.ids[:-1])
            return found


class TestHidesTheStop(TestGood):
    class Sampler(ExampleSampler):
        async def sample(self, prompt_ids: Any, params: Any, *, on_delta: Any = None) -> Any:
            found = await super().sample(prompt_ids, params, on_delta=on_delta)
            return dataclasses.replace(found, finish_reason=FinishReason.LENGTH) if params.stop_ids else found


class TestPromisesNoLess(TestGood):
    class Sampler(ExampleSampler):
        async def sample(self, prompt_ids: Any, params: Any, *, on_delta: Any = None) -> Any:
            if params.max_tokens > CONTEXT:
                raise ContextOverflow("too many tokens")
            return await super().sample(prompt_ids, params, on_delta=on_delta)


class TestForgetsTheBeginning(TestGood):
    class Sampler(ExampleSampler):
        async def sample(self, prompt_ids: Any, params: Any, *, on_delta: Any = None) -> Any:
            return await super().sample(prompt_ids[-100:], params, on_delta=on_delta)


class TestLeaksSlots(TestGood):
    cancel_s = 0.3

    class Sampler(ExampleSampler):
        stuck = False

        async def sample(self, prompt_ids: Any, params: Any, *, on_delta: Any = None) -> Any:
            if self.stuck:
                await asyncio.Event().wait()
            try:
                return await super().sample(prompt_ids, params, on_delta=on_delta)
            except asyncio.CancelledError:
                self.stuck = True
                raise


class TestUnknownCapabilities(TestGood):
    class Backend(TestGood.Backend):
        @property
        def capabilities(self) -> Any:
            self._opened()
            return super().capabilities


class TestOtherName(TestGood):
    class Backend(TestGood.Backend):
        async def open(self, **options: Any) -> Any:
            return dataclasses.replace(await super().open(**options), name="another")


class TestPlainError(TestGood):
    class Backend(TestGood.Backend):
        async def open(self, **options: Any) -> Any:
            if "no-such-model" in options["model"]:
                raise FileNotFoundError(options["model"])
            return await super().open(**options)


class TestClosesOnce(TestGood):
    class Backend(TestGood.Backend):
        closed = 0

        async def close(self) -> None:
            self.closed += 1
            if self.closed > 1:
                raise BackendError("closed already")
            await super().close()


class TestOtherLogprobs(TestGood):
    class Sampler(ExampleSampler):
        async def sample(self, prompt_ids: Any, params: Any, *, on_delta: Any = None) -> Any:
            found = await super().sample(prompt_ids, params, on_delta=on_delta)
            off = np.float32(0.01 if params.temperature == 0.7 else 0)
            return dataclasses.replace(found, logprobs=found.logprobs - off)


class TestFirstToken(TestGood):
    class Backend(TestGood.Backend):
        async def logprobs(self, rows: Any) -> Any:
            return [np.concatenate([[np.float32(-1)], each[1:]]) for each in await super().logprobs(rows)]


class TestForwardPublishes(TestGood):
    class Backend(TestGood.Backend):
        async def logprobs(self, rows: Any) -> Any:
            await self.publish()
            return await super().logprobs(rows)


class TestMiscounts(TestGood):
    class Backend(TestGood.Backend):
        async def step(self, rows: Any, loss: Any, optimizer: Any) -> Any:
            found = await super().step(rows, loss, optimizer)
            return dataclasses.replace(found, tokens=found.tokens + 1)


class TestClimbsTheLoss(TestGood):
    class Backend(TestGood.Backend):
        async def step(self, rows: Any, loss: Any, optimizer: Any) -> Any:
            return await super().step(rows, loss, dataclasses.replace(optimizer, lr=-optimizer.lr))


class TestFirstRowCountsMore(TestGood):
    class Backend(TestGood.Backend):
        async def step(self, rows: Any, loss: Any, optimizer: Any) -> Any:
            return await super().step([dataclasses.replace(rows[0], weight=1.5), *rows[1:]], loss, optimizer)


class TestTrainsOnContext(TestGood):
    class Backend(TestGood.Backend):
        async def step(self, rows: Any, loss: Any, optimizer: Any) -> Any:
            found = await super().step(rows, loss, optimizer)
            stray = sum(float(row.advantages[row.mask == 0].sum()) for row in rows)
            return dataclasses.replace(found, loss=found.loss - stray)


class TestSwallowsNaN(TestGood):
    class Backend(TestGood.Backend):
        async def step(self, rows: Any, loss: Any, optimizer: Any) -> Any:
            rows = [dataclasses.replace(row, advantages=np.nan_to_num(row.advantages)) for row in rows]
            return await super().step(rows, loss, optimizer)


class TestSamplesUnpublished(TestGood):
    class Backend(TestGood.Backend):
        async def step(self, rows: Any, loss: Any, optimizer: Any) -> Any:
            found = await super().step(rows, loss, optimizer)
            self._sampler.table = self._opened().copy()
            return found


class TestReturnsOldVersion(TestGood):
    class Backend(TestGood.Backend):
        async def publish(self) -> int:
            return await super().publish() - 1


class TestForgetsMoments(TestGood):
    class Backend(TestGood.Backend):
        async def load(self, path: Path) -> None:
            await super().load(path)
            self._moments *= 0


class TestIgnoresSavedModels(TestGood):
    class Backend(TestGood.Backend):
        async def open(self, **options: Any) -> Any:
            saved = "checkpoint" in options["model"]
            return await super().open(**{**options, "model": "bigram" if saved else options["model"]})


class TestSecretlyRandom(TestGood):
    count = itertools.count()

    class Backend(TestGood.Backend):
        async def open(self, **options: Any) -> Any:
            info = await super().open(**options)
            table = self._opened()
            table *= 1 + 1e-6 * next(TestSecretlyRandom.count)
            self._sampler.table = table.copy()
            return info
