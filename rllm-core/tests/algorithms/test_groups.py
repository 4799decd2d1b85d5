"""Rollouts are compared with those of the same role at the same task, and with nothing else."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm.algorithms.estimators import dr_grpo
from rllm.algorithms.groups import GroupKey, group_episodes, group_with_counts
from rllm.types import Episode, EpisodeStatus, Step, Task, Trajectory


def episode(task_id: str, reward: float | None, *roles: str, status: EpisodeStatus = EpisodeStatus.GRADED) -> Episode:
    trajectories = [Trajectory(name=role, steps=[Step()]) for role in roles or ("default",)]
    return Episode(task_id=task_id, status=status, reward=reward, trajectories=trajectories)


def test_four_rollouts_of_one_task_form_one_group() -> None:
    """E1."""
    (group,) = group_episodes([episode("t", reward) for reward in (1, 0, 1, 0)])
    assert group.key == GroupKey("t", "default")
    assert group.rewards.tolist() == [1, 0, 1, 0]
    assert dr_grpo([group.rewards], {})[0].mean() == 0


def test_roles_are_separate_groups() -> None:
    groups = group_episodes([episode("t", reward, "solver", "judge") for reward in (1, 0)])
    assert [(group.key.role, group.rewards.tolist()) for group in groups] == [("solver", [1, 0]), ("judge", [1, 0])]


def test_tasks_with_one_text_but_two_ids_are_not_merged() -> None:
    made = [episode(task_id, 1) for task_id in ("a", "b")]
    for each in made:
        each.task = Task(id=each.task_id, instruction="the same")
    assert len(group_episodes(made)) == 2


def test_ids_with_separators_are_not_merged() -> None:
    made = [episode("math:12", 1, "solver"), episode("math", 1, "12:solver"), episode("math:13", 1, "solver")]
    assert [group.key for group in group_episodes(made)] == [
        ("math:12", "solver"),
        ("math", "12:solver"),
        ("math:13", "solver"),
    ]


def test_several_trajectories_of_one_role_are_members_of_one_group() -> None:
    (group,) = group_episodes([episode("t", 1, "solver", "solver", "solver"), episode("t", 0, "solver")])
    assert group.rewards.tolist() == [1, 1, 1, 0]
    assert len({member.trajectory.uid for member in group.members}) == 4


def test_a_trajectorys_own_reward_comes_first() -> None:
    mine = episode("t", 1.0)
    mine.trajectories[0].reward = 0.25
    assert group_episodes([mine])[0].rewards.tolist() == [0.25]


@pytest.mark.parametrize("status", [status for status in EpisodeStatus if status is not EpisodeStatus.GRADED])
def test_a_failed_rollout_is_counted_and_the_rest_of_its_group_remains(status: EpisodeStatus) -> None:
    failed = episode("t", 0.0, status=status)
    groups, left_out = group_with_counts([episode("t", 1), failed, episode("t", 0)])
    assert groups[0].rewards.tolist() == [1, 0]
    assert left_out == {status.value: 1}


@pytest.mark.parametrize(
    ("reward", "reason"),
    [
        (None, "missing_reward"),
        (math.nan, "nonfinite_reward"),
        (math.inf, "nonfinite_reward"),
        (-math.inf, "nonfinite_reward"),
        (1e31, "nonfinite_reward"),
    ],
)
def test_a_reward_that_is_none_never_reaches_an_estimator(reward: float | None, reason: str) -> None:
    groups, left_out = group_with_counts([episode("t", reward), episode("t", 1), episode("t", 0)])
    assert groups[0].rewards.tolist() == [1, 0]
    assert left_out == {reason: 1}


def test_trajectories_without_steps_or_not_reported_are_left_out() -> None:
    empty, hidden = episode("t", 1), episode("t", 1)
    empty.trajectories[0].steps.clear()
    hidden.trajectories[0].trainable = False
    groups, left_out = group_with_counts([empty, hidden])
    assert groups == []
    assert left_out == {"empty": 1, "unreported": 1}


def test_partial_groups_keep_their_own_size() -> None:
    """E5."""
    arriving = [("A", 1), ("B", 0), ("B", 0), ("A", 1), ("B", 0), ("A", 0), ("B", 1)]
    groups = group_episodes([episode(task_id, reward) for task_id, reward in arriving])
    assert {group.key.task_id: group.rewards.mean() for group in groups} == {"A": pytest.approx(2 / 3), "B": 0.25}


@given(st.lists(st.tuples(st.sampled_from("AB"), st.integers(0, 3)), max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_arrival_changes_no_advantage(arrivals: list[tuple[str, int]], random: object) -> None:
    made = [episode(task_id, float(reward)) for task_id, reward in arrivals]

    def advantages(episodes: list[Episode]) -> dict[str, float]:
        found = {}
        groups = group_episodes(episodes)
        for group, values in zip(groups, dr_grpo([each.rewards for each in groups], {}), strict=True):
            found |= {member.episode.id: value for member, value in zip(group.members, values, strict=True)}
        return found

    shuffled = list(made)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # random.Random
    assert advantages(shuffled) == advantages(made)
