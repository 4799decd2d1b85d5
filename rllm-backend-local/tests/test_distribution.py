"""Draws follow the distribution, and their log-probabilities are of exactly that distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rllm_backend_local.distribution import Choice, Settings, choose, truncate, uniforms


def draw(
    logits: torch.Tensor, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0
) -> Choice:
    count = logits.shape[0]
    return choose(
        logits,
        Settings(
            np.full(count, temperature, np.float32),
            np.full(count, top_k),
            np.full(count, top_p, np.float32),
            uniforms(np.full(count, seed, np.uint64), np.arange(count)),
        ),
    )


def chi_square(ids: np.ndarray, expected: np.ndarray) -> float:
    counts = np.bincount(ids, minlength=expected.size)
    kept = expected > 0
    assert not counts[~kept].any()
    return float(((counts[kept] - ids.size * expected[kept]) ** 2 / (ids.size * expected[kept])).sum())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_draws_follow_the_softmax(temperature: float) -> None:
    logits = torch.tensor(np.random.default_rng(0).normal(0, 1.5, 40), dtype=torch.float32)
    choice = draw(logits.expand(40_000, -1), temperature=temperature)
    expected = (logits.double() / temperature).softmax(-1).numpy()
    assert chi_square(choice.ids, expected) < 78.0  # 39 degrees of freedom, p = 0.0002
    np.testing.assert_allclose(choice.logprobs, np.log(expected)[choice.ids], atol=2e-6)


def test_numbers_of_different_seeds_and_counters_are_uniform_and_unrelated() -> None:
    table = uniforms(np.repeat(np.arange(300, dtype=np.uint64), 300), np.tile(np.arange(300), 300)).reshape(300, 300)
    assert 0 <= table.min() < 0.001
    assert 0.999 < table.max() < 1
    assert np.abs(table.mean(0) - 0.5).max() < 0.075
    assert np.abs(table.mean(1) - 0.5).max() < 0.075
    assert np.abs(np.corrcoef(table) - np.eye(300)).max() < 0.3
    assert np.unique(table).size == table.size


def test_top_k_and_temperature_give_the_processed_logprob() -> None:
    """Pitfall A26: logits [2, 1, 0] at temperature 0.5 with top_k 2."""
    choice = draw(torch.tensor([[2.0, 1.0, 0.0]]).expand(2000, -1), temperature=0.5, top_k=2)
    assert set(choice.ids.tolist()) == {0, 1}
    of_first = choice.logprobs[choice.ids == 0][0]
    assert of_first == pytest.approx(np.log(np.exp(4) / (np.exp(4) + np.exp(2))), abs=1e-6)


def test_top_p_keeps_the_fewest_that_reach_it() -> None:
    logits = torch.tensor([[0.1, 0.5, 0.15, 0.25]]).log()
    for top_p, kept in ((0.4, {1}), (0.51, {1, 3}), (0.74, {1, 3}), (0.8, {1, 2, 3}), (1.0, {0, 1, 2, 3})):
        out = truncate(logits, torch.tensor([0]), torch.tensor([top_p]))
        assert set(torch.isfinite(out)[0].nonzero()[:, 0].tolist()) == kept, top_p


def test_top_p_counts_within_top_k() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    out = truncate(logits, torch.tensor([2]), torch.tensor([0.5]))
    assert torch.isfinite(out)[0].tolist() == [True, False, False, False]


def test_of_equal_logits_the_lower_ids_are_kept() -> None:
    out = truncate(torch.zeros(1, 5), torch.tensor([2]), torch.tensor([1.0]))
    assert torch.isfinite(out)[0].tolist() == [True, True, False, False, False]


def test_greedy_takes_the_largest_and_tells_the_models_own_logprob() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0]])
    choice = draw(logits, temperature=0, top_k=1)
    assert choice.ids.tolist() == [1]
    assert choice.logprobs[0] == pytest.approx(logits.log_softmax(-1)[0, 1].item())


def test_greedy_and_sampled_rows_do_not_change_each_other() -> None:
    logits = torch.randn(50, 20, generator=torch.Generator().manual_seed(0))
    heat = np.where(np.arange(50) % 2, 1.0, 0.0).astype(np.float32)
    uniform = uniforms(np.zeros(50, np.uint64), np.arange(50))
    mixed = choose(logits, Settings(heat, np.zeros(50, np.int64), np.ones(50, np.float32), uniform))
    for temperature in (0.0, 1.0):
        alone = draw(logits, temperature=temperature)
        rows = heat == temperature
        np.testing.assert_array_equal(mixed.ids[rows], alone.ids[rows])
        np.testing.assert_array_equal(mixed.logprobs[rows], alone.logprobs[rows])


def test_a_token_of_no_probability_is_never_drawn() -> None:
    logits = torch.tensor([[float("-inf"), 0.0, float("-inf")]]).expand(1000, -1)
    assert set(draw(logits).ids.tolist()) == {1}
    for edge in (0.0, 1 - 2**-53):
        settings = Settings(np.ones(1, np.float32), np.zeros(1, np.int64), np.ones(1, np.float32), np.array([edge]))
        assert choose(logits[:1], settings).ids.tolist() == [1]


def test_logits_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(ValueError, match="not finite"):
        draw(torch.full((1, 3), float("nan")))
