"""Advantages agree with tables worked out by hand, depend on order of nothing, and never amplify rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm.algorithms.estimators import (
    dr_grpo,
    grpo,
    is_uniform,
    reinforce,
    reinforce_pp_baseline,
    rloo,
)

Estimate = Callable[[Any, Mapping[str, float]], list[Any]]
ALL: list[Estimate] = [grpo, dr_grpo, rloo, reinforce, reinforce_pp_baseline]
CENTRED: list[Estimate] = [grpo, dr_grpo, rloo, reinforce_pp_baseline]


def run(estimate: Estimate, *groups: list[float], **params: float) -> list[list[float]]:
    return [each.tolist() for each in estimate([np.array(group, np.float64) for group in groups], params)]


# E6: [0, 1] has population standard deviation 1/2, so grpo gives ±0.5 / (0.5 + 1e-6); a sample standard deviation
# would give ±0.7071, no division ±0.5.
TABLE: list[tuple[Estimate, list[list[float]], list[list[float]]]] = [
    (grpo, [[0, 1]], [[-0.999998, 0.999998]]),
    (grpo, [[1, 0, 1, 0]], [[0.999998, -0.999998, 0.999998, -0.999998]]),
    (grpo, [[1, 1, 0]], [[0.70710528, 0.70710528, -1.41421056]]),
    (grpo, [[0, 0, 0, 1]], [[-0.57734894, -0.57734894, -0.57734894, 1.73204681]]),
    (grpo, [[1, 2, 3, 4, 5]], [[-1.41421256, -0.70710628, 0, 0.70710628, 1.41421256]]),
    (dr_grpo, [[0, 1]], [[-0.5, 0.5]]),
    (dr_grpo, [[1, 1, 0], [0, 0, 0, 1]], [[1 / 3, 1 / 3, -2 / 3], [-0.25, -0.25, -0.25, 0.75]]),
    (rloo, [[0, 1]], [[-1, 1]]),
    (rloo, [[1, 0, 1, 0]], [[2 / 3, -2 / 3, 2 / 3, -2 / 3]]),
    (rloo, [[3, 1, 2]], [[1.5, -1.5, 0]]),
    (reinforce, [[1, 0, -2.5], [7]], [[1, 0, -2.5], [7]]),
    # c = ±0.5, ±0.5, ±1: mean of squares (4 * 0.25 + 2) / 6 = 0.5
    (
        reinforce_pp_baseline,
        [[0, 1], [1, 0], [0, 2]],
        [[-0.70710578, 0.70710578], [0.70710578, -0.70710578], [-1.41421156, 1.41421156]],
    ),
    # c = -0.5, 0.5, 0: mean of squares 1/6; the group of one counts in it
    (reinforce_pp_baseline, [[0, 1], [5]], [[-1.22474187, 1.22474187], [0]]),
]


@pytest.mark.parametrize(("estimate", "groups", "expected"), TABLE)
def test_advantages_agree_with_the_table(
    estimate: Estimate, groups: list[list[float]], expected: list[list[float]]
) -> None:
    for found, wanted in zip(run(estimate, *groups), expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-6)


def test_one_task_with_mixed_rewards_has_a_mean_advantage_of_zero() -> None:
    """E1, on the level of one group."""
    for estimate in CENTRED:
        assert math.fsum(run(estimate, [1, 0, 1, 0])[0]) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("estimate", CENTRED)
@pytest.mark.parametrize("reward", [0.0, 1.0, -3.5, 0.1, 1e12])
def test_a_group_of_one_gets_nothing(estimate: Estimate, reward: float) -> None:
    """E2."""
    assert run(estimate, [reward]) == [[0.0]]


def test_without_a_baseline_a_group_of_one_gets_its_reward() -> None:
    assert run(reinforce, [0.75]) == [[0.75]]


@pytest.mark.parametrize("estimate", CENTRED)
@pytest.mark.parametrize(
    "group",
    [
        [0.0, 0.0, 0.0],
        [0.1] * 7,
        [1 / 3] * 3,
        [1e300] * 3,
        [0.3, 0.1 + 0.2],  # one unit in the last place apart
        [1.0, np.nextafter(1.0, 2.0), np.nextafter(1.0, 0.0)],
        [1e6, np.nextafter(1e6, 2e6)],
        [0.0, 5e-324],
        [-0.7, -0.1 - 0.6, -0.7],
    ],
)
def test_rewards_that_differ_only_by_rounding_get_exactly_zero(estimate: Estimate, group: list[float]) -> None:
    assert run(estimate, group) == [[0.0] * len(group)]


@pytest.mark.parametrize("estimate", CENTRED)
def test_a_small_but_real_difference_is_learnt_from(estimate: Estimate) -> None:
    low, high = run(estimate, [1.0, 1.0 + 1e-12])[0]
    assert low < 0 < high


def test_a_uniform_group_beside_an_informative_one_stays_at_zero() -> None:
    for estimate in CENTRED:
        uniform, informative = run(estimate, [1 / 3, 1 / 3, 1 / 3], [0, 1])
        assert uniform == [0.0, 0.0, 0.0]
        assert informative[1] > 0


def test_partial_groups_are_not_taken_for_full_ones() -> None:
    """E5: three rollouts of one task and four of another, whatever order they arrive in."""
    first, second = run(dr_grpo, [1, 1, 0], [0, 0, 0, 1])
    assert first == pytest.approx([1 / 3, 1 / 3, -2 / 3])
    assert second == pytest.approx([-0.25, -0.25, -0.25, 0.75])


def test_group_normalised_advantages_are_not_normalised_again_over_the_batch() -> None:
    """E7: each group of grpo has unit variance, whatever the others are."""
    small, large = run(grpo, [0, 1], [0, 1000])
    assert np.std(small) == pytest.approx(1, abs=1e-5)
    assert np.std(large) == pytest.approx(1, abs=1e-5)
    assert run(grpo, [0, 1])[0] == small


def test_the_parameter_eps_damps_small_differences() -> None:
    assert run(grpo, [0, 1], eps=0.5) == [[-0.5, 0.5]]
    assert run(reinforce_pp_baseline, [0, 1], eps=0.5) == [[-0.5, 0.5]]


def test_the_rewards_are_left_as_they_were() -> None:
    for estimate in ALL:
        rewards = np.array([1.0, 0.0])
        result = estimate([rewards], {})[0]
        result[0] = 99.0
        assert rewards.tolist() == [1.0, 0.0]


def test_no_groups_give_no_advantages() -> None:
    assert all(estimate([], {}) == [] for estimate in ALL)


ordinary = st.floats(-1e6, 1e6).map(lambda value: round(value, 6))
groups_strategy = st.lists(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=6), min_size=1, max_size=5)


@given(groups_strategy)
def test_advantages_are_finite_and_have_the_shape_of_the_rewards(groups: list[list[float]]) -> None:
    for estimate in ALL:
        found = run(estimate, *groups)
        assert [len(each) for each in found] == [len(each) for each in groups]
        assert all(math.isfinite(value) for each in found for value in each)


@given(groups_strategy, st.randoms(use_true_random=False))
def test_order_changes_nothing_but_the_order(groups: list[list[float]], random: Any) -> None:
    group_order = random.sample(range(len(groups)), len(groups))
    member_orders = [random.sample(range(len(groups[g])), len(groups[g])) for g in group_order]
    shuffled = [[groups[g][m] for m in order] for g, order in zip(group_order, member_orders, strict=True)]
    for estimate in ALL:
        straight = run(estimate, *groups)
        expected = [[straight[g][m] for m in order] for g, order in zip(group_order, member_orders, strict=True)]
        assert run(estimate, *shuffled) == expected


@given(st.lists(st.lists(ordinary, min_size=1, max_size=6), min_size=1, max_size=4), st.integers(-1000, 1000))
def test_a_constant_added_to_the_rewards_changes_nothing(groups: list[list[float]], shift: int) -> None:
    moved = [[value + shift for value in group] for group in groups]
    for estimate in (dr_grpo, rloo):
        for before, after in zip(run(estimate, *groups), run(estimate, *moved), strict=True):
            assert after == pytest.approx(before, abs=1e-6)


@given(st.lists(st.integers(-50, 50).map(float), min_size=2, max_size=8), st.integers(1, 100))
def test_a_scale_of_the_rewards_changes_only_what_is_not_normalised(group: list[float], scale: int) -> None:
    scaled = [value * scale for value in group]
    assert run(grpo, scaled)[0] == pytest.approx(run(grpo, group)[0], abs=1e-4)
    assert run(dr_grpo, scaled)[0] == pytest.approx([scale * value for value in run(dr_grpo, group)[0]], abs=1e-6)


@given(st.lists(ordinary, min_size=2, max_size=8))
def test_leave_one_out_is_the_reward_less_the_mean_of_the_others(group: list[float]) -> None:
    expected = [r - (math.fsum(group) - r) / (len(group) - 1) for r in group]
    if not is_uniform(np.array(group)):
        assert run(rloo, group)[0] == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(st.lists(st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=5), min_size=1, max_size=5))
def test_better_rewards_never_get_smaller_advantages(groups: list[list[float]]) -> None:
    for estimate in ALL:
        for rewards, advantages in zip(groups, run(estimate, *groups), strict=True):
            ranked = [value for _, value in sorted(zip(rewards, advantages, strict=True))]
            assert ranked == sorted(ranked)
