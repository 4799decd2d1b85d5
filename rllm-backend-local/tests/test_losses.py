"""Loss tables worked out by hand from the formulas, and edges that overflow."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from rllm.algorithms.losses import AGGREGATIONS as CORE_AGGREGATIONS
from rllm.algorithms.losses import LOSSES as CORE_LOSSES
from rllm.errors import ConfigError
from rllm.interfaces.backend import LossSpec, Row
from rllm_backend_local.backend import LocalBackend
from rllm_backend_local.losses import AGGREGATIONS, LOSSES, Tokens, check, k3, row_token_weights, token_losses


def tokens(logp: list[float], logq: list[float], advantage: list[float], ref: list[float] | None = None) -> Tokens:
    return Tokens(
        torch.tensor(logp, requires_grad=True),
        torch.tensor(logq),
        torch.tensor(advantage),
        None if ref is None else torch.tensor(ref),
    )


def row(mask: list[int], weight: float = 1.0) -> Row:
    size = len(mask)
    return Row(
        ids=np.zeros(size, np.int32),
        mask=np.array(mask, np.uint8),
        advantages=np.zeros(size, np.float32),
        logprobs=np.zeros(size, np.float32),
        versions=np.zeros(size, np.int32),
        weight=weight,
    )


HALF, DOUBLE = math.log(0.5), math.log(2.0)


@pytest.mark.parametrize(
    ("name", "params", "expected", "gradient"),
    [
        # logp - logq = [ln 2, ln 1/2, ln 2, ln 1/2, 0], A = [1, 1, -1, -1, 2]
        ("policy_gradient", {}, [0.5, 1.5, -0.5, -1.5, 2.0], [-1, -1, 1, 1, -2]),
        ("importance_sampling", {}, [-2.0, -0.5, 2.0, 0.5, -2.0], [-2, -0.5, 2, 0.5, -2]),
        ("ppo_clip", {}, [-1.2, -0.5, 2.0, 0.8, -2.0], [0, -0.5, 2, 0, -2]),
        (
            "ppo_clip",
            {"clip_low": 0.6, "clip_high": 1.5},
            [-2.0, -0.5, 2.0, 0.5, -2.0],
            [-2, -0.5, 2, 0.5, -2],
        ),
        ("ppo_clip", {"dual_clip": 1.5}, [-1.2, -0.5, 1.5, 0.8, -2.0], [0, -0.5, 0, 0, -2]),
        ("cross_entropy", {}, [0.5, 1.5, 0.5, 1.5, 1.0], [-1, -1, -1, -1, -1]),
    ],
)
def test_losses_and_their_gradients_by_hand(
    name: str, params: dict[str, float], expected: list[float], gradient: list[float]
) -> None:
    logp = [-0.5, -1.5, -0.5, -1.5, -1.0]
    moved = [DOUBLE, HALF, DOUBLE, HALF, 0.0]
    batch = tokens(logp, [p - d for p, d in zip(logp, moved, strict=True)], [1, 1, -1, -1, 2])
    loss, clipped = token_losses(batch, LossSpec(name=name, params=params))
    np.testing.assert_allclose(loss.detach(), expected, atol=1e-6)
    (found,) = torch.autograd.grad(loss.sum(), batch.logp)
    np.testing.assert_allclose(found, gradient, atol=1e-6)
    if name == "ppo_clip" and not params:
        assert clipped is not None
        assert clipped.tolist() == [True, False, False, True, False]


def test_k3_is_added_and_points_to_the_reference() -> None:
    batch = tokens([-1.0, -1.0], [-1.0, -1.0], [0.0, 0.0], ref=[-0.9, -1.0])
    loss, _ = token_losses(batch, LossSpec(name="policy_gradient", params={"kl_coef": 0.5}))
    np.testing.assert_allclose(loss.detach(), [0.5 * 0.00517092, 0.0], atol=1e-6)
    (gradient,) = torch.autograd.grad(loss.sum(), batch.logp)
    np.testing.assert_allclose(gradient, [-0.5 * (math.exp(0.1) - 1), 0.0], atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_k3_and_its_gradient_stay_finite_when_far_away(dtype: torch.dtype) -> None:
    """Pitfall E13."""
    logp = torch.tensor([-100.0, 0.0], dtype=dtype, requires_grad=True)
    value = k3(torch.tensor([0.0, -100.0], dtype=dtype) - logp)
    (gradient,) = torch.autograd.grad(value.sum(), logp)
    assert torch.isfinite(value).all()
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["importance_sampling", "ppo_clip"])
def test_ratios_stay_finite_when_far_away(name: str) -> None:
    batch = tokens([0.0, -200.0], [-200.0, 0.0], [1.0, -1.0])
    loss, _ = token_losses(batch, LossSpec(name=name))
    (gradient,) = torch.autograd.grad(loss.sum(), batch.logp)
    assert torch.isfinite(loss).all()
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("aggregation", "params", "expected"),
    [
        ("token-mean", {}, [1 / 4, 2 / 4, 0.5 / 4]),
        ("seq-mean-token-sum", {}, [1 / 2, 2 / 2, 0.5 / 2]),
        ("seq-mean-token-mean", {}, [1 / 2, 2 / 6, 0.5 / 2]),
        ("constant", {"horizon": 8}, [1 / 16, 2 / 16, 0.5 / 16]),
    ],
)
def test_what_a_token_weighs_does_not_count_rows_without_trained_tokens(
    aggregation: str, params: dict[str, float], expected: list[float]
) -> None:
    rows = [row([0, 1, 0]), row([0, 1, 1, 1], weight=2.0), row([0, 0], weight=0.5)]
    spec = LossSpec(name="policy_gradient", aggregation=aggregation, params=params)
    np.testing.assert_allclose(row_token_weights(rows, spec), expected)


def test_impossible_losses_are_refused_with_every_fault() -> None:
    with pytest.raises(ConfigError) as caught:
        check(LossSpec(name="gspo", aggregation="median", params={"beta": 1}))
    assert len(caught.value.faults) == 3
    with pytest.raises(ConfigError, match="horizon"):
        check(LossSpec(name="policy_gradient", aggregation="constant"))


def test_what_is_promised_is_what_is_there_and_what_the_core_defines() -> None:
    promised = LocalBackend().capabilities
    assert promised.losses == set(LOSSES) <= set(CORE_LOSSES)
    assert promised.aggregations == set(AGGREGATIONS) == set(CORE_AGGREGATIONS)
    for name in LOSSES:
        check(LossSpec(name=name, params=CORE_LOSSES[name].params))


def test_token_mean_of_one_short_and_one_long_reply(make_row: Callable[..., Row]) -> None:
    """Pitfall E9: lengths 1 and 3, advantages +1 and -1, ratio 1: the loss is +0.5."""
    rows = [row([0, 1]), row([0, 1, 1, 1])]
    weights = row_token_weights(rows, LossSpec(name="importance_sampling"))
    assert -1.0 * weights[0] + 3 * weights[1] == pytest.approx(0.5)
