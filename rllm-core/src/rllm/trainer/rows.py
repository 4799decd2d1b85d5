"""From captured calls to training rows.

Each call is a node that stores the tokens it adds; a row is one path from a root to a leaf. A sampled token that is
shared by several paths (a fork) is trained on in the first of them and is context in the others, so that every
sampled token carries mask 1 exactly once, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rllm.errors import DataError
from rllm.interfaces.backend import Row
from rllm.types import CapturedCall, Episode, Trajectory

__all__ = ["call_index", "trajectory_rows"]


def call_index(episode: Episode) -> dict[str, CapturedCall]:
    """Every call of the episode by id; parents of one trajectory's calls may belong to another."""
    return {call.id: call for call in episode.calls()}


@dataclass(slots=True)
class _Claims:
    """Advantages of the calls that still have to be trained on; a call leaves when a row takes it."""

    advantages: dict[str, NDArray[np.float32]]

    def take(self, call: CapturedCall) -> NDArray[np.float32] | None:
        return self.advantages.pop(call.id, None)


def trajectory_rows(
    trajectory: Trajectory,
    advantage: float,
    calls: Mapping[str, CapturedCall],
    *,
    temperature: float,
    episode_id: str,
) -> list[Row]:
    """Rows that train every trainable call of `trajectory` once.

    `advantage` goes to each sampled token, except where a step brings its own per-token `advantages`. Untrainable
    calls (inexact, aborted, without log-probabilities) are context at most.
    """
    claims = _Claims({})
    own: list[CapturedCall] = []
    for step in trajectory.steps:
        call = step.call
        if call is None or not call.trainable:
            continue
        size = call.response_ids.size
        if step.advantages is not None and step.advantages.size != size:
            raise DataError(
                f"step {step.id!r} has {step.advantages.size} advantages for {size} sampled tokens; give one per token"
            )
        given = step.advantages
        claims.advantages[call.id] = np.full(size, advantage, np.float32) if given is None else given
        own.append(call)
    parents = {call.parent_id for call in own}
    rows = [_row(_path(leaf, calls), claims, temperature, episode_id) for leaf in own if leaf.id not in parents]
    return [row for row in rows if row is not None]


def _path(leaf: CapturedCall, calls: Mapping[str, CapturedCall]) -> list[CapturedCall]:
    path = [leaf]
    while (parent_id := path[-1].parent_id) is not None:
        if parent_id not in calls:
            raise DataError(f"call {path[-1].id!r} has the parent {parent_id!r}, which was not captured")
        path.append(calls[parent_id])
    return path[::-1]


def _row(path: Iterable[CapturedCall], claims: _Claims, temperature: float, episode_id: str) -> Row | None:
    ids: list[NDArray[np.int32]] = []
    masks: list[NDArray[np.uint8]] = []
    advantages: list[NDArray[np.float32]] = []
    logprobs: list[NDArray[np.float32]] = []
    versions: list[NDArray[np.int32]] = []

    def context(tokens: NDArray[np.int32]) -> None:
        ids.append(tokens)
        masks.append(np.zeros(tokens.size, np.uint8))
        advantages.append(np.zeros(tokens.size, np.float32))
        logprobs.append(np.zeros(tokens.size, np.float32))
        versions.append(np.full(tokens.size, -1, np.int32))

    trained = False
    for call in path:
        context(call.added_ids)
        advantage = claims.take(call)
        if advantage is None:
            context(call.response_ids)
            continue
        trained = True
        ids.append(call.response_ids)
        masks.append(np.ones(call.response_ids.size, np.uint8))
        advantages.append(advantage)
        logprobs.append(call.logprobs)
        versions.append(call.weight_versions)
    if not trained:
        return None
    return Row(
        ids=np.concatenate(ids),
        mask=np.concatenate(masks),
        advantages=np.concatenate(advantages),
        logprobs=np.concatenate(logprobs),
        versions=np.concatenate(versions),
        temperature=temperature,
        episode_id=episode_id,
    )
