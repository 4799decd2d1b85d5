"""Groups that teach nothing are dropped and counted; a rollout that is left out takes nobody with it."""

from __future__ import annotations

import pytest

from rllm.algorithms.filters import Filters, apply_filters
from rllm.algorithms.groups import RolloutGroup, group_episodes
from rllm.config.schema import FilterConfig
from rllm.types import Episode, EpisodeStatus, Step, Termination, Trajectory


def group(*rewards: float, ends: tuple[Termination, ...] = ()) -> RolloutGroup:
    terminations = ends or (Termination.FINISHED,) * len(rewards)
    made = [
        Episode(
            task_id="t",
            status=EpisodeStatus.GRADED,
            reward=reward,
            termination=termination,
            trajectories=[Trajectory(steps=[Step()])],
        )
        for reward, termination in zip(rewards, terminations, strict=True)
    ]
    return group_episodes(made)[0]


@pytest.mark.parametrize(
    ("rewards", "reason"),
    [
        ((1, 1), "too_easy"),
        ((2, 2, 2), "too_easy"),
        ((0, 0), "too_hard"),
        ((-1, -1), "too_hard"),
        ((0.5, 0.5), "uniform"),
        ((0.3, 0.1 + 0.2), "uniform"),
        ((1,), "too_small"),
    ],
)
def test_a_group_that_teaches_nothing_is_dropped_and_counted(rewards: tuple[float, ...], reason: str) -> None:
    filters = Filters.from_config(FilterConfig(), needs_group=True)
    kept, counts = apply_filters([group(*rewards), group(0, 1)], filters)
    assert [each.rewards.tolist() for each in kept] == [[0, 1]]
    assert counts == {reason: 1}


def test_an_estimator_without_a_baseline_learns_from_every_group() -> None:
    filters = Filters.from_config(FilterConfig(), needs_group=False)
    kept, counts = apply_filters([group(1), group(1, 1), group(0, 1)], filters)
    assert len(kept) == 3
    assert counts == {}


def test_uniform_groups_may_be_kept_and_small_ones_dropped() -> None:
    filters = Filters.from_config(FilterConfig(drop_uniform=False, min_group=3), needs_group=True)
    kept, counts = apply_filters([group(1, 1, 1), group(0, 1)], filters)
    assert [each.rewards.tolist() for each in kept] == [[1, 1, 1]]
    assert counts == {"too_small": 1}


def test_a_rollout_that_was_cut_off_is_left_out_and_its_group_stays() -> None:
    """E15: the cut rollout is no part of the baseline, the real failure is."""
    ends = (Termination.FINISHED, Termination.FINISHED, Termination.MAX_TOKENS, Termination.FINISHED)
    filters = Filters.from_config(FilterConfig(drop_terminations=(Termination.MAX_TOKENS,)), needs_group=True)
    given = group(1, 1, 0, 0, ends=ends)
    (kept,), counts = apply_filters([given], filters)
    assert kept.rewards.tolist() == [1, 1, 0]
    assert counts == {"rollouts_max_tokens": 1}
    assert given.rewards.tolist() == [1, 1, 0, 0]


def test_a_group_of_which_nothing_remains_is_too_small() -> None:
    ends = (Termination.DEADLINE, Termination.DEADLINE)
    filters = Filters.from_config(FilterConfig(drop_terminations=(Termination.DEADLINE,)), needs_group=False)
    kept, counts = apply_filters([group(1, 0, ends=ends)], filters)
    assert kept == []
    assert counts == {"rollouts_deadline": 2, "too_small": 1}
