"""From episodes to groups of comparable rollouts: those of one role at one task.

Only graded episodes enter a group; every other one is counted by its status, never given a reward of 0. The key is
structured, so a task id may contain any character and tasks are never merged because their texts are alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rllm.types import Episode, EpisodeStatus, Trajectory

__all__ = ["MAX_REWARD", "GroupKey", "Member", "RolloutGroup", "group_episodes", "group_with_counts"]

MAX_REWARD = 1e30
"""Rewards beyond this cannot be centred and scaled in float32; they count as not finite."""


class GroupKey(NamedTuple):
    """What members of a group have in common."""

    task_id: str
    role: str


@dataclass(frozen=True, slots=True)
class Member:
    """One rollout in a group."""

    episode: Episode
    trajectory: Trajectory
    reward: float
    """The trajectory's own reward, else the episode's. Finite."""


@dataclass(slots=True)
class RolloutGroup:
    """Rollouts that share a baseline."""

    key: GroupKey
    members: list[Member] = field(default_factory=list)

    @property
    def rewards(self) -> NDArray[np.float64]:
        """Shape [n], in the order of the members."""
        return np.array([member.reward for member in self.members], dtype=np.float64)


def group_episodes(episodes: Iterable[Episode]) -> list[RolloutGroup]:
    """Groups by (task, role), in the order of their first member. See `group_with_counts` for what is left out."""
    return group_with_counts(episodes)[0]


def group_with_counts(episodes: Iterable[Episode]) -> tuple[list[RolloutGroup], Counter[str]]:
    """Groups by (task, role), and how many rollouts were left out, by reason.

    The reasons are the statuses of episodes that were not graded, `missing_reward`, `nonfinite_reward` (NaN,
    infinite or beyond `MAX_REWARD`), `empty` (a trajectory without steps) and `unreported` (calls that the flow did
    not report). An episode with several trajectories of one role puts each of them in that role's group.
    """
    groups: dict[GroupKey, RolloutGroup] = {}
    left_out: Counter[str] = Counter()
    for episode in episodes:
        if episode.status is not EpisodeStatus.GRADED:
            left_out[episode.status.value] += 1
            continue
        for trajectory in episode.trajectories:
            reward = episode.reward if trajectory.reward is None else trajectory.reward
            if reason := _unusable(trajectory, reward):
                left_out[reason] += 1
            elif reward is not None:
                key = GroupKey(episode.task_id, trajectory.name)
                group = groups.setdefault(key, RolloutGroup(key))
                group.members.append(Member(episode, trajectory, float(reward)))
    return list(groups.values()), left_out


def _unusable(trajectory: Trajectory, reward: float | None) -> str:
    if not trajectory.trainable:
        return "unreported"
    if reward is None:
        return "missing_reward"
    if not math.isfinite(reward) or abs(reward) > MAX_REWARD:
        return "nonfinite_reward"
    return "" if trajectory.steps else "empty"
