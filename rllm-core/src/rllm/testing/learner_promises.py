"""What a backend's learner promises: steps, log-probabilities, publication and checkpoints."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from rllm.errors import BackendError, ModelError
from rllm.interfaces.backend import OptimizerSpec
from rllm.testing.backend_fixture import BackendFixture, MakeBackend
from rllm.testing.promise import promise

__all__ = ["LearnerPromises"]


class LearnerPromises(BackendFixture):
    """Opening, learning, publishing, saving and closing."""

    @promise
    async def test_knows_its_capabilities_before_it_is_opened(self, make_backend: MakeBackend) -> None:
        found = make_backend().capabilities
        assert found.losses, "capabilities name no loss"
        assert found.aggregations, "capabilities name no aggregation"
        assert found.full or found.lora, "capabilities say that neither full nor LoRA training works"

    @promise
    async def test_describes_the_model_that_it_opened(self, make_backend: MakeBackend) -> None:
        backend = make_backend()
        try:
            info = await backend.open(model=self.model, seed=5)
            assert info.name == self.model, f"opened {self.model!r}, described {info.name!r}"
            assert (info.tokenizer_dir / "tokenizer.json").is_file(), f"no tokenizer in {info.tokenizer_dir}"
            assert info.context_length == backend.sampler.context_length, "two context lengths"
            assert 0 < info.trainable_parameters <= info.parameters, f"parameters: {info!r}"
            assert backend.version == 0, f"opened at version {backend.version}, expected 0"
        finally:
            await backend.close()

    @promise
    async def test_refuses_a_model_that_it_cannot_find(self, make_backend: MakeBackend, tmp_path: Path) -> None:
        backend = make_backend()
        with pytest.raises(ModelError):
            await backend.open(model=str(tmp_path / "no-such-model"), seed=5)
        await backend.close()

    @promise
    async def test_closes_twice(self, make_backend: MakeBackend) -> None:
        backend = make_backend()
        await backend.close()
        await backend.open(model=self.model, seed=5)
        await backend.close()
        await backend.close()

    @promise
    async def test_sampled_logprobs_agree_with_the_forward_pass(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            for temperature in (1.0, 0.7):
                rows = await self.sampled(backend, 3, temperature=temperature)
                for row, found in zip(rows, await backend.logprobs(rows), strict=True):
                    apart = float(np.abs(found - row.logprobs)[row.mask == 1].max())
                    assert apart <= self.tolerance, (
                        f"at temperature {temperature} sampler and forward pass differ by {apart:.2g}"
                    )

    @promise
    async def test_forward_pass_gives_one_logprob_per_token(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            rows = await self.sampled(backend, 3)
            together = await backend.logprobs(rows)
            assert [each.shape for each in together] == [row.ids.shape for row in rows], "shapes differ"
            assert all(each[0] == 0 for each in together), "entry 0 has nothing before it and must be 0"
            alone = [(await backend.logprobs([row]))[0] for row in rows]
            apart = self.apart(together, alone)
            assert apart <= self.tolerance, f"a row's log-probabilities depend on its batch, by {apart:.2g}"

    @promise
    async def test_forward_pass_changes_nothing(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            rows = await self.sampled(backend, 2)
            first = await backend.logprobs(rows)
            again = await backend.logprobs(rows)
            assert self.apart(first, again) <= self.tolerance, "a second forward pass differs"
            assert backend.version == 0, f"a forward pass published version {backend.version}"

    @promise
    async def test_step_reports_what_it_did(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            rows = await self.sampled(backend, 4)
            result = await backend.step(rows, self.loss(backend), self.optimizer)
            tokens = sum(int(row.mask.sum()) for row in rows)
            assert result.tokens == tokens, f"{result.tokens} trained tokens, the masks have {tokens}"
            assert np.isfinite(result.loss), f"loss {result.loss}"
            assert result.grad_norm > 0, f"gradient norm {result.grad_norm}"
            for name in ("entropy", "kl_behaviour"):
                value = result.metrics.get(name, float("nan"))
                assert np.isfinite(value), f"metric {name!r} is {value}"
            drift = result.metrics["kl_behaviour"]
            assert abs(drift) < 1e-3, f"kl_behaviour is {drift} for rows of the current weights"

    @promise
    async def test_step_makes_rewarded_tokens_likelier(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            (row,) = await self.sampled(backend, 1)
            before = (await backend.logprobs([row]))[0][row.mask == 1].sum()
            for _ in range(3):
                await backend.step([row], self.loss(backend), self.optimizer)
            after = (await backend.logprobs([row]))[0][row.mask == 1].sum()
            assert after > before, f"three steps took the log-probability from {before:.4f} to {after:.4f}"

    @promise
    async def test_gradient_does_not_depend_on_the_order_of_rows(self, make_backend: MakeBackend) -> None:
        gentle = OptimizerSpec(lr=1e-2, eps=1.0, grad_clip=0.0)  # so large an eps makes the update linear
        found, norms = [], []
        for turn in (1, -1):
            async with self.opened(make_backend) as backend:
                rows = await self.sampled(backend, 5)
                result = await backend.step(rows[::turn], self.loss(backend), gentle)
                norms.append(result.grad_norm)
                found.append(await backend.logprobs(rows))
        assert np.isclose(norms[0], norms[1], rtol=1e-3), f"gradient norms {norms} for the same rows in another order"
        assert self.apart(*found) <= self.tolerance, "the same rows in another order train other weights"

    @promise
    async def test_context_is_not_trained_on(self, make_backend: MakeBackend) -> None:
        losses = []
        for junk in (0.0, 3.0):
            async with self.opened(make_backend) as backend:
                rows = [
                    dataclasses.replace(
                        row,
                        advantages=np.where(row.mask == 1, row.advantages, np.float32(junk)),
                        logprobs=np.where(row.mask == 1, row.logprobs, np.float32(-junk)),
                    )
                    for row in await self.sampled(backend, 2)
                ]
                result = await backend.step(rows, self.loss(backend), self.optimizer)
                losses.append((result.loss, result.grad_norm))
        assert np.allclose(losses[0], losses[1], rtol=1e-4), (
            f"what stands where the mask is 0 changes (loss, norm): {losses}"
        )

    @promise
    async def test_refuses_a_loss_that_is_not_finite(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            rows = await self.sampled(backend, 2)
            before = await backend.logprobs(rows)
            bad = np.where(rows[0].mask == 1, np.float32("nan"), np.float32(0)).astype(np.float32)
            with pytest.raises(BackendError):
                await backend.step(
                    [dataclasses.replace(rows[0], advantages=bad), rows[1]], self.loss(backend), self.optimizer
                )
            assert self.apart(before, await backend.logprobs(rows)) <= 1e-6, "the refused step changed the weights"

    @promise
    async def test_sampler_waits_for_publication(self, make_backend: MakeBackend) -> None:
        strong = dataclasses.replace(self.optimizer, lr=0.05)
        async with self.opened(make_backend) as backend:
            rows = await self.sampled(backend, 2)
            before = await backend.sampler.sample(self.prompt(), self.params())
            await backend.step(rows, self.loss(backend), strong)
            unpublished = await backend.sampler.sample(self.prompt(), self.params())
            assert np.array_equal(before.ids, unpublished.ids), "a step changed the sampler before it was published"
            assert np.allclose(before.logprobs, unpublished.logprobs, atol=self.tolerance), (
                "a step changed the sampler's log-probabilities before it was published"
            )
            await backend.publish()
            sample = await backend.sampler.sample(self.prompt(), self.params())
            row = self.row(self.prompt(), sample, advantage=1.0)
            (forward,) = await backend.logprobs([row])
            apart = float(np.abs(forward - row.logprobs)[row.mask == 1].max())
            assert apart <= self.tolerance, f"after publication sampler and learner differ by {apart:.2g}"

    @promise
    async def test_publication_adds_one_to_the_version(self, make_backend: MakeBackend) -> None:
        async with self.opened(make_backend) as backend:
            for expected in (1, 2):
                returned = await backend.publish()
                assert returned == backend.version == expected, (
                    f"publish returned {returned}, version is {backend.version}, expected {expected}"
                )
            sample = await backend.sampler.sample(self.prompt(), self.params())
            assert (sample.versions == 2).all(), f"tokens of version 2 are marked {sample.versions!r}"

    @promise
    async def test_load_restores_bit_for_bit(self, make_backend: MakeBackend, tmp_path: Path) -> None:
        async with self.opened(make_backend) as backend:
            rows = await self.sampled(backend, 3)
            await backend.step(rows, self.loss(backend), self.optimizer)
            await backend.publish()
            await backend.save(tmp_path / "checkpoint")
            saved = await backend.logprobs(rows)
            await backend.step(rows, self.loss(backend), self.optimizer)
            await backend.publish()
            onward = await backend.logprobs(rows)
        async with self.opened(make_backend, seed=6) as backend:
            await backend.load(tmp_path / "checkpoint")
            assert backend.version == 1, f"saved at version 1, loaded at {backend.version}"
            sample = await backend.sampler.sample(self.prompt(), self.params())
            assert (sample.versions == 1).all(), f"loaded version 1 samples {sample.versions!r}"
            assert self.same(saved, await backend.logprobs(rows)), "loaded weights differ from the saved ones"
            await backend.step(rows, self.loss(backend), self.optimizer)
            apart = self.apart(onward, await backend.logprobs(rows))
            limit = 0.0 if backend.capabilities.deterministic else self.tolerance
            assert apart <= limit, f"the step after loading differs by {apart:.2g}: optimizer state is not restored"

    @promise
    async def test_opens_the_model_that_it_saved(self, make_backend: MakeBackend, tmp_path: Path) -> None:
        async with self.opened(make_backend) as backend:
            rows = await self.sampled(backend, 2)
            await backend.step(rows, self.loss(backend), self.optimizer)
            await backend.save(tmp_path / "checkpoint")
            saved = await backend.logprobs(rows)
        other = make_backend()
        try:
            await other.open(model=str(tmp_path / "checkpoint" / "model"), seed=6)
            apart = self.apart(saved, await other.logprobs(rows))
            assert apart <= self.tolerance, f"the saved model, opened, differs by {apart:.2g}"
        finally:
            await other.close()

    @promise
    async def test_is_deterministic_if_it_says_so(self, make_backend: MakeBackend) -> None:
        found = []
        for _ in range(2):
            async with self.opened(make_backend) as backend:
                if not backend.capabilities.deterministic:
                    return
                rows = await self.sampled(backend, 3)
                await backend.step(rows, self.loss(backend), self.optimizer)
                found.append(await backend.logprobs(rows))
        assert self.same(*found), "two runs with one seed end with different parameters"
