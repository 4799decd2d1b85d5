"""The learner: one gradient whatever the micro-batches, equal to one written out by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from rllm.errors import BackendError
from rllm.interfaces.backend import LossSpec, OptimizerSpec, Row
from rllm_backend_local.learner import Learner
from rllm_backend_local.losses import AGGREGATIONS
from rllm_backend_local.policy import Policy

SPECS = [
    LossSpec(
        name="ppo_clip",
        aggregation=aggregation,
        params={"horizon": 40.0} if aggregation == "constant" else {},
    )
    for aggregation in AGGREGATIONS
]


class _Watched(Learner):
    """Keeps the gradient and leaves the weights alone."""

    caught: list[torch.Tensor]

    def _update(self, adamw: torch.optim.AdamW, spec: OptimizerSpec, norm: float) -> None:
        self.caught = [p.grad.clone().flatten() for p in self._policy.trainable().values() if p.grad is not None]


def gradients(policy: Policy, rows: list[Row], spec: LossSpec, budget: int) -> tuple[float, torch.Tensor]:
    """Loss and gradient, caught before the update."""
    learner = _Watched(policy, micro_batch_tokens=budget)
    result = learner.step(rows, spec, OptimizerSpec(lr=1e-3))
    return result.loss, torch.cat(learner.caught)


def by_hand(policy: Policy, rows: list[Row], spec: LossSpec) -> tuple[float, torch.Tensor]:
    """PPO-clip, one row at a time and nothing shared."""
    policy.learner.zero_grad()
    trained = [row for row in rows if row.mask.any()]
    everything = sum(int(row.mask.sum()) for row in rows)
    total = torch.zeros(())
    for row in trained:
        logits = policy.learner(input_ids=torch.from_numpy(row.ids.astype(np.int64))[None], use_cache=False).logits[0]
        table = (logits / row.temperature).log_softmax(-1)
        logp = table[torch.arange(row.ids.size - 1), torch.from_numpy(row.ids[1:].astype(np.int64))]
        mask = torch.from_numpy(row.mask[1:].astype(bool))
        ratio = (logp - torch.from_numpy(row.logprobs[1:])).exp()
        advantage = torch.from_numpy(row.advantages[1:])
        loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)[mask]
        scale = {
            "token-mean": 1 / everything,
            "seq-mean-token-sum": 1 / len(trained),
            "seq-mean-token-mean": 1 / len(trained) / int(mask.sum()),
            "constant": 1 / len(trained) / 40,
        }[spec.aggregation]
        total = total + row.weight * scale * loss.sum()
    grads = torch.autograd.grad(total, list(policy.trainable().values()))
    return float(total.detach()), torch.cat([g.flatten() for g in grads])


@pytest.mark.parametrize("spec", SPECS, ids=AGGREGATIONS)
def test_the_gradient_is_the_handwritten_one_whatever_the_micro_batches(
    spec: LossSpec, make_policy: Callable[..., Policy], rows: list[Row]
) -> None:
    policy = make_policy()
    loss, expected = by_hand(policy, rows, spec)
    for budget in (1, 40, 128, 300, 100_000):
        found_loss, found = gradients(policy, rows, spec, budget)
        assert found_loss == pytest.approx(loss, rel=1e-4, abs=1e-6)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("kind", ["qwen2-sliding", "gemma3", "gpt2"])
def test_shared_prompts_are_exact_for_other_architectures(
    kind: str,
    tmp_path: Path,
    make_policy: Callable[..., Policy],
    write_model: Callable[..., Path],
    rows: list[Row],
) -> None:
    policy = make_policy(write_model(tmp_path / "model", kind))
    spec = LossSpec(name="ppo_clip")
    loss, expected = by_hand(policy, rows, spec)
    found_loss, found = gradients(policy, rows, spec, 4096)
    assert found_loss == pytest.approx(loss, rel=1e-3)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


def test_what_stands_in_masked_entries_has_no_effect(make_policy: Callable[..., Policy], rows: list[Row]) -> None:
    policy = make_policy()
    spec = LossSpec(name="ppo_clip")
    spoilt = []
    for row in rows:
        off = row.mask == 0
        spoilt.append(
            dataclasses.replace(
                row,
                logprobs=np.where(off, np.float32("nan"), row.logprobs),
                advantages=np.where(off, np.float32("inf"), row.advantages),
            )
        )
    expected = gradients(policy, rows, spec, 512)
    found = gradients(policy, spoilt, spec, 512)
    assert found[0] == expected[0]
    assert torch.equal(found[1], expected[1])


def test_rows_without_trained_tokens_change_nothing(make_policy: Callable[..., Policy], rows: list[Row]) -> None:
    policy = make_policy()
    padding = dataclasses.replace(rows[0], mask=np.zeros_like(rows[0].mask))
    for aggregation in ("token-mean", "seq-mean-token-mean"):
        spec = LossSpec(name="ppo_clip", aggregation=aggregation)
        plain, padded = gradients(policy, rows, spec, 512), gradients(policy, [*rows, padding], spec, 512)
        assert torch.equal(plain[1], padded[1])
    learner = Learner(policy, micro_batch_tokens=512)
    assert learner.step([padding], LossSpec(name="ppo_clip"), OptimizerSpec(lr=1.0)).tokens == 0


def test_a_step_that_is_not_finite_changes_nothing(make_policy: Callable[..., Policy], rows: list[Row]) -> None:
    policy = make_policy()
    learner = Learner(policy, micro_batch_tokens=64)
    learner.step(rows, LossSpec(name="ppo_clip"), OptimizerSpec(lr=1e-3))
    before = [p.detach().clone() for p in policy.trainable().values()]
    spoilt = dataclasses.replace(rows[-1], advantages=np.full(rows[-1].ids.size, np.nan, np.float32))
    with pytest.raises(BackendError, match="not finite"):
        learner.step([*rows, spoilt], LossSpec(name="ppo_clip"), OptimizerSpec(lr=1e-3))
    for old, new in zip(before, policy.trainable().values(), strict=True):
        assert torch.equal(old, new)


def test_the_update_is_that_of_torch_adamw_on_the_clipped_gradient(
    make_policy: Callable[..., Policy], rows: list[Row]
) -> None:
    policy, spec = make_policy(), LossSpec(name="policy_gradient")
    other = make_policy()
    adamw = torch.optim.AdamW(list(other.trainable().values()), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    learner = Learner(policy, micro_batch_tokens=256)
    for _ in range(3):
        learner.step(rows, spec, OptimizerSpec(lr=1e-2, grad_clip=0.1))
        _, flat = gradients(other, rows, spec, 256)
        weights = list(other.trainable().values())
        for weight, part in zip(weights, torch.split(flat, [w.numel() for w in weights]), strict=True):
            weight.grad = part.view_as(weight)
        torch.nn.utils.clip_grad_norm_(weights, 0.1)
        adamw.step()
    for mine, theirs in zip(policy.trainable().values(), other.trainable().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_logprobs_are_those_of_the_plain_forward_pass(make_policy: Callable[..., Policy], rows: list[Row]) -> None:
    policy = make_policy()
    found = Learner(policy, micro_batch_tokens=100).logprobs(rows)
    for row, values in zip(rows, found, strict=True):
        ids = torch.from_numpy(row.ids.astype(np.int64))
        with torch.no_grad():
            table = (policy.base(input_ids=ids[None]).logits[0] / row.temperature).log_softmax(-1)
        assert values[0] == 0
        np.testing.assert_allclose(values[1:], table[torch.arange(ids.numel() - 1), ids[1:]], atol=2e-5)


def test_metrics_say_how_far_the_policy_moved(make_policy: Callable[..., Policy], rows: list[Row]) -> None:
    policy = make_policy()
    learner = Learner(policy, micro_batch_tokens=512)
    own = [
        dataclasses.replace(row, logprobs=np.where(row.mask, logp, 0).astype(np.float32))
        for row, logp in zip(rows, learner.logprobs(rows), strict=True)
    ]
    spec, optimizer = LossSpec(name="ppo_clip"), OptimizerSpec(lr=3e-2)
    first = learner.step(own, spec, optimizer).metrics
    assert first["kl_behaviour"] == pytest.approx(0, abs=1e-6)
    assert first["ratio_max"] == pytest.approx(1, abs=1e-4)
    assert 0 < first["entropy"] < np.log(358)
    second = learner.step(own, spec, optimizer).metrics
    assert second["kl_behaviour"] > 1e-3
    assert second["clip_fraction"] > 0


def test_the_reference_is_the_initial_weights(make_policy: Callable[..., Policy], rows: list[Row]) -> None:
    for rank in (0, 4):
        policy = make_policy(lora_rank=rank)
        learner = Learner(policy, micro_batch_tokens=512)
        before = learner.logprobs(rows)
        spec = LossSpec(name="policy_gradient", params={"kl_coef": 0.1})
        assert learner.step(rows, spec, OptimizerSpec(lr=0.1)).metrics["kl_reference"] == pytest.approx(0, abs=1e-5)
        assert learner.step(rows, spec, OptimizerSpec(lr=0.1)).metrics["kl_reference"] > 1e-4
        for old, now in zip(before, learner.reference_logprobs(rows), strict=True):
            np.testing.assert_allclose(old, now, atol=1e-5)


def test_lora_trains_adapters_only_and_publishes_them_merged(
    make_policy: Callable[..., Policy], rows: list[Row]
) -> None:
    policy = make_policy(lora_rank=4)
    assert all("lora_" in name for name in policy.trainable())
    base = {n: p.clone() for n, p in policy.base.named_parameters() if not p.requires_grad}
    learner = Learner(policy, micro_batch_tokens=512)
    for _ in range(3):
        learner.step(rows, LossSpec(name="ppo_clip"), OptimizerSpec(lr=1e-2))
    for name, parameter in policy.base.named_parameters():
        if name in base:
            assert torch.equal(parameter, base[name])
    ids = torch.from_numpy(rows[0].ids.astype(np.int64))[None]
    with torch.no_grad():
        adapted = policy.learner(input_ids=ids, use_cache=False).logits
        policy.publish()
        policy.sampler.set_attn_implementation("sdpa")  # type: ignore[operator]
        merged = policy.sampler(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(adapted, merged, rtol=1e-4, atol=1e-4)


def test_the_same_steps_give_the_same_bits(make_policy: Callable[..., Policy], rows: list[Row]) -> None:
    found = []
    for _ in range(2):
        policy = make_policy()
        torch.set_num_threads(2)
        learner = Learner(policy, micro_batch_tokens=256)
        for _ in range(4):
            learner.step(rows, LossSpec(name="ppo_clip"), OptimizerSpec(lr=1e-3))
        found.append([p.detach().clone() for p in policy.trainable().values()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
