"""The learning rate warms up, decays, and is never 0 by accident."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm.algorithms.schedules import SCHEDULES, learning_rate


def rates(schedule: str, total: int, *, warmup_steps: int = 0, min_ratio: float = 0.0) -> list[float]:
    return [
        learning_rate(schedule, step, total, warmup_steps=warmup_steps, min_ratio=min_ratio)
        for step in range(1, total + 1)
    ]


def test_rates_agree_with_the_table() -> None:
    assert rates("constant", 3) == [1, 1, 1]
    assert rates("linear", 4) == [1, 0.75, 0.5, 0.25]
    assert rates("linear", 4, min_ratio=0.2) == pytest.approx([1, 0.8, 0.6, 0.4])
    assert rates("cosine", 4) == pytest.approx([1, 0.8535534, 0.5, 0.1464466])
    assert rates("linear", 6, warmup_steps=2) == pytest.approx([1 / 3, 2 / 3, 1, 0.75, 0.5, 0.25])
    assert rates("constant", 4, warmup_steps=3) == [0.25, 0.5, 0.75, 1]


@given(st.sampled_from(SCHEDULES), st.integers(1, 300), st.integers(0, 320), st.floats(0, 1))
def test_a_rate_is_never_zero_and_never_above_the_peak(
    schedule: str, total: int, warmup_steps: int, min_ratio: float
) -> None:
    found = rates(schedule, total, warmup_steps=warmup_steps, min_ratio=min_ratio)
    assert all(0 < rate <= 1 for rate in found)
    after = found[warmup_steps:]
    assert after == sorted(after, reverse=True)
    assert all(rate >= min_ratio - 1e-12 for rate in after)


def test_steps_beyond_the_last_keep_its_rate() -> None:
    assert learning_rate("linear", 99, 4) == 0.25


def test_a_single_update_has_the_full_rate() -> None:
    assert all(rates(schedule, 1) == [1.0] for schedule in SCHEDULES)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="no schedule is called 'cosin'"):
        learning_rate("cosin", 1, 2)
    with pytest.raises(ValueError, match="counted from 1"):
        learning_rate("linear", 0, 2)
