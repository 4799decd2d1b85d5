"""Which groups are worth training on. What is dropped is counted by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rllm.algorithms.estimators import is_uniform
from rllm.algorithms.groups import RolloutGroup
from rllm.config.schema import FilterConfig
from rllm.types import Termination

__all__ = ["Filters", "apply_filters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What is dropped."""

    drop_uniform: bool = True
    """Groups whose rewards are all equal. Only for estimators that learn from differences."""
    min_group: int = 1
    """Groups with fewer members, after the rollouts below have been left out."""
    drop_terminations: frozenset[Termination] = frozenset()
    """Rollouts that ended like this; the rest of their group stays and is its baseline."""

    @classmethod
    def from_config(cls, config: FilterConfig, *, needs_group: bool) -> Filters:
        """The filters of a run. An estimator that needs a group learns nothing from one rollout, whatever is asked."""
        return cls(
            drop_uniform=config.drop_uniform and needs_group,
            min_group=max(config.min_group, 2 if needs_group else 1),
            drop_terminations=frozenset(config.drop_terminations),
        )


def apply_filters(groups: Iterable[RolloutGroup], filters: Filters) -> tuple[list[RolloutGroup], dict[str, int]]:
    """The groups that remain, and counts: `too_small`, `too_easy`, `too_hard` and `uniform` in groups (uniform at a
    reward of at least 1, of at most 0, and in between), and `rollouts_<termination>` in rollouts.

    The groups that are given stay as they are.
    """
    kept: list[RolloutGroup] = []
    counts: Counter[str] = Counter()
    for group in groups:
        members = []
        for member in group.members:
            termination = member.episode.termination
            if termination in filters.drop_terminations:
                counts[f"rollouts_{termination.value}"] += 1
            else:
                members.append(member)
        remaining = RolloutGroup(group.key, members)
        if reason := _reason(remaining, filters):
            counts[reason] += 1
        else:
            kept.append(remaining)
    return kept, dict(sorted(counts.items()))


def _reason(group: RolloutGroup, filters: Filters) -> str:
    if len(group.members) < filters.min_group or not group.members:
        return "too_small"
    rewards = group.rewards
    if not filters.drop_uniform or not is_uniform(rewards):
        return ""
    if rewards.min() >= 1:
        return "too_easy"
    return "too_hard" if rewards.max() <= 0 else "uniform"
