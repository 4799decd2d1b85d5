"""What a backend's sampler promises."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from numpy.typing import NDArray

from rllm.errors import ContextOverflow
from rllm.interfaces.sampler import SamplingParams
from rllm.testing.backend_fixture import BackendFixture, MakeBackend
from rllm.testing.promise import promise
from rllm.types import FinishReason

__all__ = ["SamplerPromises"]


class SamplerPromises(BackendFixture):
    """Sampling: shapes, seeds, stops, limits and cancellation."""

    cancelled_requests = 40
    """More than the backend can serve at the same time."""
    cancel_s = 30.0
    """Seconds in which a request must be served after others were cancelled."""

    @promise
    async def test_sample_arrays_belong_together(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            sample = await backend.sampler.sample(self.prompt(), self.params())
            size = sample.ids.size
            assert 1 <= size <= self.reply_tokens, f"{size} tokens, at most {self.reply_tokens} were asked for"
            dtypes = [str(each.dtype) for each in (sample.ids, sample.logprobs, sample.versions)]
            assert dtypes == ["int32", "float32", "int32"], f"dtypes of ids, logprobs and versions: {dtypes}"
            assert sample.logprobs.shape == sample.versions.shape == (size,), "arrays differ in length"
            assert np.isfinite(sample.logprobs).all(), f"not finite: {sample.logprobs!r}"
            assert (sample.logprobs <= 1e-5).all(), f"above 0: {sample.logprobs!r}"
            assert (sample.versions == backend.version).all(), f"versions {sample.versions!r}"
            full = size == self.reply_tokens
            assert sample.finish_reason is FinishReason.STOP or (
                full and sample.finish_reason is FinishReason.LENGTH
            ), f"{size} tokens ended with {sample.finish_reason!r}"

    @promise
    async def test_a_seed_fixes_the_sample(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            alone = await backend.sampler.sample(self.prompt(), self.params(seed=3))
            crowd = await asyncio.gather(
                *(backend.sampler.sample(self.prompt(), self.params(seed=seed)) for seed in (1, 2, 3, 4))
            )
            assert np.array_equal(alone.ids, crowd[2].ids), (
                f"seed 3 gave {alone.ids!r} alone and {crowd[2].ids!r} among others"
            )

    @promise
    async def test_other_seeds_give_other_samples(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            samples = [
                await backend.sampler.sample(self.prompt(), self.params(seed=seed, temperature=1.5))
                for seed in range(6)
            ]
            assert len({each.ids.tobytes() for each in samples}) > 1, "six seeds gave one and the same sample"

    @promise
    async def test_no_seed_gives_a_fresh_sample(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            samples = [
                await backend.sampler.sample(self.prompt(), self.params(seed=None, temperature=1.5)) for _ in range(6)
            ]
            assert len({each.ids.tobytes() for each in samples}) > 1, "six samples without a seed are the same"

    @promise
    async def test_temperature_zero_is_greedy(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            samples = [
                await backend.sampler.sample(self.prompt(), self.params(seed=seed, temperature=0.0))
                for seed in (1, 2, 3)
            ]
            assert len({each.ids.tobytes() for each in samples}) == 1, "greedy samples differ"

    @promise
    async def test_listener_hears_every_token(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            heard: list[NDArray[np.int32]] = []
            sample = await backend.sampler.sample(self.prompt(), self.params(), on_delta=heard.append)
            whole = np.concatenate(heard) if heard else np.zeros(0, np.int32)
            assert np.array_equal(whole, sample.ids), f"heard {whole!r}, sampled {sample.ids!r}"

    @promise
    async def test_stops_with_a_stop_id(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            greedy = SamplingParams(max_tokens=1, temperature=0.0)
            first = int((await backend.sampler.sample(self.prompt(), greedy)).ids[0])
            params = SamplingParams(max_tokens=self.reply_tokens, temperature=0.0, stop_ids=(first,))
            sample = await backend.sampler.sample(self.prompt(), params)
            assert sample.ids.tolist() == [first], f"stop id {first} gave {sample.ids!r}"
            assert sample.finish_reason is FinishReason.STOP, f"ended with {sample.finish_reason!r}"

    @promise
    async def test_cuts_a_reply_that_does_not_fit(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            greedy = SamplingParams(max_tokens=1, temperature=0.0)
            first = int((await backend.sampler.sample(self.prompt(), greedy)).ids[0])
            beyond = SamplingParams(max_tokens=2 * backend.sampler.context_length, temperature=0.0, stop_ids=(first,))
            sample = await backend.sampler.sample(self.prompt(), beyond)
            assert sample.ids.size == 1, f"more tokens than fit were asked for, and {sample.ids!r} came"

    @promise
    async def test_refuses_a_prompt_that_does_not_fit(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            prompt = np.full(backend.sampler.context_length, self.prompt_ids[0], dtype=np.int32)
            with pytest.raises(ContextOverflow):
                await backend.sampler.sample(prompt, self.params())

    @promise
    async def test_a_cancelled_request_frees_what_it_held(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            long = SamplingParams(max_tokens=backend.sampler.context_length, temperature=1.0)
            running = [
                asyncio.ensure_future(backend.sampler.sample(self.prompt(), long))
                for _ in range(self.cancelled_requests)
            ]
            await asyncio.sleep(0.01)
            for each in running:
                each.cancel()
            done, pending = await asyncio.wait(running, timeout=self.cancel_s)
            assert not pending, f"{len(pending)} of {len(running)} cancelled requests have not ended"
            served = asyncio.ensure_future(backend.sampler.sample(self.prompt(), self.params()))
            done, _ = await asyncio.wait([served], timeout=self.cancel_s)
            served.cancel()
            assert done, f"nothing is served {self.cancel_s} s after {len(running)} requests were cancelled"
            assert served.result().ids.size, "the request after the cancelled ones was not served"
