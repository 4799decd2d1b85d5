from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm import arrays
from rllm.errors import DataError
from rllm.trainer.rows import call_index, trajectory_rows
from rllm.types import CapturedCall, Episode, Exactness, FinishReason, Step, Trajectory


def call(name: str, added: list[int], sampled: list[int], parent: str | None = None, **fields: Any) -> CapturedCall:
    return CapturedCall(
        id=name,
        parent_id=parent,
        added_ids=arrays.ids(added),
        response_ids=arrays.ids(sampled),
        logprobs=arrays.floats([-0.5 * i for i in sampled]),
        weight_versions=arrays.ids([3] * len(sampled)),
        **fields,
    )


def rows_of(*calls: CapturedCall, others: tuple[CapturedCall, ...] = (), advantage: float = 2.0) -> list[Any]:
    trajectory = Trajectory(steps=[Step(call=each) for each in calls])
    rest = Trajectory(name="other", steps=[Step(call=each) for each in others])
    episode = Episode(trajectories=[trajectory, rest])
    return trajectory_rows(trajectory, advantage, call_index(episode), temperature=0.7, episode_id=episode.id)


def test_a_conversation_is_one_row_with_context_masked() -> None:
    (row,) = rows_of(call("a", [1, 2], [3, 4]), call("b", [5], [6], "a"))
    assert row.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert row.mask.tolist() == [0, 0, 1, 1, 0, 1]
    assert row.advantages.tolist() == [0, 0, 2, 2, 0, 2]
    assert row.logprobs.tolist() == [0, 0, -1.5, -2.0, 0, -3.0]
    assert row.versions.tolist() == [-1, -1, 3, 3, -1, 3]
    assert row.temperature == 0.7


def test_a_fork_trains_the_shared_reply_once() -> None:
    rows = rows_of(call("a", [1], [2]), call("b", [3], [4], "a"), call("c", [5], [6], "a"))
    assert [row.ids.tolist() for row in rows] == [[1, 2, 3, 4], [1, 2, 5, 6]]
    assert [row.mask.tolist() for row in rows] == [[0, 1, 0, 1], [0, 0, 0, 1]]


def test_a_parent_in_another_trajectory_is_context() -> None:
    (row,) = rows_of(call("b", [3], [4], "a"), others=(call("a", [1], [2]),))
    assert row.ids.tolist() == [1, 2, 3, 4]
    assert row.mask.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "fields",
    [
        {"exactness": Exactness.INEXACT},
        {"finish_reason": FinishReason.ABORT},
        {"logprobs": arrays.floats()},
        {"logprobs": arrays.floats([np.nan])},
        {"weight_versions": arrays.ids()},
    ],
)
def test_what_is_not_trainable_gives_no_row(fields: dict[str, Any]) -> None:
    bad = call("a", [1], [2]).model_copy(update=fields)
    assert rows_of(bad) == []


def test_an_untrainable_parent_is_context_and_its_child_is_trained() -> None:
    parent = call("a", [1], [2]).model_copy(update={"logprobs": arrays.floats()})
    (row,) = rows_of(parent, call("b", [3], [4], "a"))
    assert row.mask.tolist() == [0, 0, 0, 1]


def test_a_missing_parent_is_an_error() -> None:
    with pytest.raises(DataError, match="was not captured"):
        rows_of(call("b", [3], [4], "gone"))


def test_a_steps_own_advantages_win_and_must_fit() -> None:
    step = Step(call=call("a", [1], [2, 3]), advantages=arrays.floats([0.25, -1.0]))
    episode = Episode(trajectories=[Trajectory(steps=[step])])
    args: Any = (episode.trajectories[0], 9.0, call_index(episode))
    (row,) = trajectory_rows(*args, temperature=1.0, episode_id="e")
    assert row.advantages.tolist() == [0, 0.25, -1.0]
    step.advantages = arrays.floats([1.0])
    with pytest.raises(DataError, match="give one per token"):
        trajectory_rows(*args, temperature=1.0, episode_id="e")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans()), min_size=1, max_size=12),
    st.data(),
)
def test_every_sampled_token_is_trained_exactly_once(shape: list[tuple[int, int, bool]], data: st.DataObject) -> None:
    calls: list[CapturedCall] = []
    token = 1
    for index, (added, sampled, _) in enumerate(shape):
        parents: list[str | None] = [None, *(each.id for each in calls)]
        parent = data.draw(st.sampled_from(parents))
        size = max(added, 1) if parent is None else added
        context = list(range(token, token + size))
        reply = list(range(token + size, token + size + sampled))
        token += size + sampled
        calls.append(call(str(index), context, reply, parent))
    rows = rows_of(*calls)
    trained = [int(i) for row in rows for i in row.ids[row.mask == 1]]
    assert sorted(trained) == sorted(int(i) for each in calls for i in each.response_ids)
    for row in rows:
        assert (row.logprobs[row.mask == 0] == 0).all()
        assert (row.advantages[row.mask == 0] == 0).all()
