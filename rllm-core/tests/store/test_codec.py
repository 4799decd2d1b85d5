"""An episode comes back from the disk exactly as it was, however odd."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllm.errors import StoreError
from rllm.store.codec import decode_episode, encode_episode
from rllm.types import CapturedCall, Episode, Step, Trajectory


def round_trip(episode: Episode) -> Episode:
    row = encode_episode(episode, step=3, split="train")
    return decode_episode(row.data, row.tokens)


def with_call(call: CapturedCall) -> Episode:
    return Episode(trajectories=[Trajectory(steps=[Step(call=call)])])


@settings(max_examples=150)
@given(data=st.data())
def test_any_episode_survives(data: st.DataObject, any_episode: Any) -> None:
    episode = data.draw(any_episode)
    before = episode.model_dump_json()
    restored = round_trip(episode)
    assert restored == episode
    assert restored.model_dump_json() == before
    assert episode.model_dump_json() == before


@given(data=st.data())
def test_arrays_come_back_with_their_types_and_may_be_changed(data: st.DataObject, any_call: Any) -> None:
    call = data.draw(any_call)
    (restored,) = round_trip(with_call(call)).calls()
    for name in ("added_ids", "response_ids", "logprobs", "weight_versions"):
        array = getattr(restored, name)
        assert array.dtype == getattr(call, name).dtype
        assert array.flags.writeable
        assert array.flags.owndata


def test_token_data_is_four_bytes_a_value_and_equal_versions_are_stored_once() -> None:
    size = 1000
    call = CapturedCall(
        added_ids=np.arange(50), response_ids=np.arange(size), logprobs=np.zeros(size), weight_versions=np.full(size, 7)
    )
    row = encode_episode(with_call(call), step=None, split="train")
    assert len(row.tokens) == 16 + 4 * (50 + size + size + 1)
    assert len(row.data) < 1500
    (restored,) = decode_episode(row.data, row.tokens).calls()
    assert restored == call


def test_a_long_conversation_costs_only_the_tokens_that_it_adds() -> None:
    calls = [
        CapturedCall(
            added_ids=np.arange(20), response_ids=np.arange(10), logprobs=np.zeros(10), weight_versions=[0] * 10
        )
        for _ in range(100)
    ]
    episode = Episode(trajectories=[Trajectory(steps=[Step(call=call) for call in calls])])
    assert len(encode_episode(episode, step=None, split="train").tokens) == 100 * (16 + 4 * (20 + 10 + 10 + 1))


def test_half_a_surrogate_pair_survives() -> None:
    """A reply that was cut inside an emoji, as `json.loads` hands it over."""
    episode = Episode(task_id="t\ud83d", artifacts={"answer": "half \ud83d", "n": [1, None, True, 0.5]})
    assert round_trip(episode) == episode


def test_what_is_not_json_is_kept_as_its_repr_and_loses_nothing_else() -> None:
    class Move:
        def __repr__(self) -> str:
            return "Move(up)"

    call = CapturedCall(response_ids=[1, 2])
    step = Step(action=Move(), observation={"grid": np.array([[1, 2]]), 3: {"a"}}, call=call)
    restored = round_trip(Episode(trajectories=[Trajectory(steps=[step])]))
    (found,) = restored.trajectories[0].steps
    assert found.action == "Move(up)"
    assert found.observation == {"grid": [[1, 2]], "3": ["a"]}
    assert found.call == call


def test_infinities_and_nan_of_the_models_own_fields_survive() -> None:
    episode = Episode(reward=math.nan, metrics={"a": math.inf, "b": -math.inf})
    assert round_trip(episode) == episode


def test_a_field_of_the_wrong_type_is_named_before_it_is_stored() -> None:
    episode = Episode(id="ep_1")
    episode.reward = "high"  # type: ignore[assignment]  # a flow can do this
    with pytest.raises(StoreError, match=r"'ep_1' cannot be stored.*reward"):
        encode_episode(episode, step=None, split="eval")


@pytest.mark.parametrize("tokens", [b"", b"\0" * 15, b"\xff" * 16, b"\1\0\0\0" + b"\0" * 12, b"\0" * 17])
def test_damaged_token_data_is_an_error(tokens: bytes) -> None:
    row = encode_episode(with_call(CapturedCall()), step=None, split="eval")
    with pytest.raises(StoreError, match="damaged"):
        decode_episode(row.data, tokens)


def test_damaged_json_is_an_error() -> None:
    for data in ("", "{", '{"task": 3}'):
        with pytest.raises(StoreError, match="damaged"):
            decode_episode(data, b"")
