"""From a step's episodes to training rows, and the numbers that describe both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rllm.algorithms.filters import apply_filters
from rllm.algorithms.groups import group_with_counts
from rllm.interfaces.backend import Row
from rllm.trainer.plan import Plan
from rllm.trainer.rows import call_index, trajectory_rows
from rllm.types import Episode, EpisodeStatus

__all__ = ["Batch", "make_batch"]


@dataclass(slots=True)
class Batch:
    """What the learner gets, and what is known about where it came from."""

    rows: list[Row]
    metrics: dict[str, float]
    idle_reason: str = ""
    """Why there are no rows, when there are none."""

    def minibatches(self, count: int) -> list[list[Row]]:
        """The rows in up to `count` parts of nearly equal size; the rows of one episode stay together."""
        if not self.rows:
            return []
        bounds = [round(len(self.rows) * part / count) for part in range(count + 1)]
        for part in range(1, count):
            while 0 < bounds[part] < len(self.rows) and (
                self.rows[bounds[part]].episode_id == self.rows[bounds[part] - 1].episode_id
            ):
                bounds[part] += 1
        parts = [self.rows[low:high] for low, high in pairwise(bounds)]
        return [part for part in parts if part]


def make_batch(episodes: Sequence[Episode], plan: Plan, *, step: int) -> Batch:
    """Group by (task, role), filter, estimate advantages, build rows."""
    groups, left_out = group_with_counts(episodes)
    kept, filtered = apply_filters(groups, plan.filters)
    metrics = _rollout_metrics(episodes)
    metrics["groups/total"] = float(len(groups))
    metrics["groups/kept"] = float(len(kept))
    for reason, count in filtered.items():
        metrics[f"groups/filtered_{reason}"] = float(count)
    statuses = {status.value for status in EpisodeStatus}
    unusable = {reason: count for reason, count in sorted(left_out.items()) if reason not in statuses}
    for reason, count in unusable.items():
        metrics[f"groups/left_out_{reason}"] = float(count)
    rows: list[Row] = []
    if kept:
        rewards_G = [np.array([member.reward for member in group.members], np.float64) for group in kept]
        advantages_G = plan.estimate(rewards_G)
        metrics |= _advantage_metrics(rewards_G, advantages_G)
        for group, advantages in zip(kept, advantages_G, strict=True):
            for member, advantage in zip(group.members, advantages, strict=True):
                rows += trajectory_rows(
                    member.trajectory,
                    float(advantage),
                    call_index(member.episode),
                    temperature=plan.config.rollout.temperature,
                    episode_id=member.episode.id,
                )
    metrics["batch/rows"] = float(len(rows))
    metrics["batch/tokens"] = float(sum(row.ids.size for row in rows))
    reason = "" if rows else _why_idle(metrics, filtered, unusable)
    return Batch(rows=rows, metrics=metrics, idle_reason=reason)


def _rollout_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    graded = [each for each in episodes if each.status is EpisodeStatus.GRADED and each.reward is not None]
    metrics = {
        "rollout/episodes": float(len(episodes)),
        "rollout/completion_tokens": sum(each.metrics.get("completion_tokens", 0.0) for each in episodes),
        "rollout/prompt_tokens": sum(each.metrics.get("prompt_tokens", 0.0) for each in episodes),
    }
    for status in EpisodeStatus:
        count = sum(each.status is status for each in episodes)
        if count or status is EpisodeStatus.GRADED:
            metrics[f"rollout/{status.value}"] = float(count)
    for each in episodes:
        for name, value in each.metrics.items():
            if name.startswith("calls_"):
                key = f"gateway/{name}"
                metrics[key] = metrics.get(key, 0.0) + value
    if graded:
        rewards = [each.reward or 0.0 for each in graded]
        mean = math.fsum(rewards) / len(rewards)
        metrics["reward/mean"] = mean
        metrics["reward/std"] = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / len(rewards))
        metrics["reward/accuracy"] = sum(bool(each.is_correct) for each in graded) / len(graded)
    return metrics


def _advantage_metrics(
    rewards_G: Sequence[NDArray[np.float64]], advantages_G: Sequence[NDArray[np.float64]]
) -> dict[str, float]:
    flat = np.concatenate(list(advantages_G))
    return {
        "advantage/mean": float(flat.mean()),
        "advantage/std": float(flat.std()),
        "advantage/abs_max": float(np.abs(flat).max()),
        "groups/mean_size": float(np.mean([each.size for each in rewards_G])),
    }


def _why_idle(metrics: dict[str, float], filtered: dict[str, int], unusable: dict[str, int]) -> str:
    if not metrics["rollout/graded"]:
        return f"none of {metrics['rollout/episodes']:.0f} rollouts was graded"
    if filtered:
        reasons = ", ".join(f"{count} {reason}" for reason, count in filtered.items())
        return f"all {metrics['groups/total']:.0f} groups were left out ({reasons})"
    if not metrics["groups/total"]:
        return f"no trajectory can be used ({', '.join(f'{count} {reason}' for reason, count in unusable.items())})"
    return "no captured call could be trained on (see gateway/calls_inexact)"
