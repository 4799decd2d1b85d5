"""The data model: lossless in JSON whatever it holds, strict about what it accepts, and equal by content."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rllm import arrays
from rllm.types import (
    AgentConfig,
    CapturedCall,
    Episode,
    EpisodeStatus,
    EvalOutput,
    Exactness,
    FinishReason,
    Signal,
    Step,
    Task,
    Trajectory,
    Usage,
    tokens_of,
)


@given(data=st.data())
def test_an_episode_survives_json_whatever_it_holds(data: st.DataObject, any_episode: Any) -> None:
    episode = data.draw(any_episode)
    assert Episode.model_validate_json(episode.model_dump_json()) == episode


@given(data=st.data())
def test_an_episode_survives_a_python_dict(data: st.DataObject, any_episode: Any) -> None:
    episode = data.draw(any_episode)
    assert Episode.model_validate(episode.model_dump()) == episode


@given(data=st.data())
def test_a_second_round_trip_changes_nothing(data: st.DataObject, any_episode: Any) -> None:
    text = data.draw(any_episode).model_dump_json()
    assert Episode.model_validate_json(text).model_dump_json() == text


@given(st.floats(), st.booleans(), st.dictionaries(st.text(), st.floats(), max_size=3))
def test_an_eval_output_survives_json(reward: float, is_correct: bool, signals: dict[str, float]) -> None:
    output = EvalOutput(
        reward=reward, is_correct=is_correct, signals=[Signal(name=k, value=v) for k, v in signals.items()]
    )
    restored = EvalOutput.model_validate_json(output.model_dump_json())
    assert restored == output
    assert math.copysign(1, restored.reward) == math.copysign(1, reward) or math.isnan(reward)


def test_arrays_keep_their_type_in_json() -> None:
    call = CapturedCall(added_ids=[1, 2], response_ids=[3], logprobs=[-0.5], weight_versions=[4])
    restored = CapturedCall.model_validate_json(call.model_dump_json())
    assert restored.added_ids.dtype == np.int32
    assert restored.logprobs.dtype == np.float32
    restored.added_ids[0] = 9
    assert call.added_ids[0] == 1


def test_the_arrays_of_a_call_do_not_change_with_the_list_or_array_they_were_made_from() -> None:
    source = np.array([1, 2, 3], np.int32)
    call = CapturedCall(response_ids=source)
    source[0] = 99
    assert call.response_ids.tolist() == [1, 2, 3]


def test_equality_is_by_content_and_distinguishes_lengths_and_types() -> None:
    first = CapturedCall(id="a", response_ids=[1, 2])
    assert first == CapturedCall(id="a", response_ids=[1, 2])
    assert first != CapturedCall(id="a", response_ids=[1, 2, 3])
    assert first != "a"
    assert CapturedCall(id="a", logprobs=[math.nan]) == CapturedCall(id="a", logprobs=[math.nan])


def test_models_can_be_copied_and_pickled() -> None:
    episode = Episode(task_id="a:b", trajectories=[Trajectory(steps=[Step(call=CapturedCall(response_ids=[1]))])])
    assert pickle.loads(pickle.dumps(episode)) == episode
    clone = copy.deepcopy(episode)
    assert clone == episode
    clone.trajectories[0].steps[0].call.response_ids[0] = 7  # type: ignore[union-attr]  # there is one
    assert clone != episode


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (Task, {"id": "a", "instruction": "x", "answer": 1}),
        (Episode, {"task": "a"}),
        (Step, {"rewards": 1.0}),
        (Trajectory, {"role": "solver"}),
        (CapturedCall, {"tokens": [1]}),
    ],
)
def test_an_unknown_field_is_refused(model: Any, data: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(data)


@pytest.mark.parametrize("bad", [[1.5], ["1"], [[1]], [2**31], [-(2**31) - 1], [None], 5, {"a": 1}, "!!", "AAA="])
def test_token_ids_that_are_not_ids_are_refused(bad: Any) -> None:
    with pytest.raises(ValidationError):
        CapturedCall(response_ids=bad)


def test_ids_are_opaque_and_distinct() -> None:
    """E17: three trajectories of one role in two episodes of one task have six identities, and their steps too."""
    episodes = [Episode(task_id="t", trajectories=[Trajectory(steps=[Step()]) for _ in range(3)]) for _ in range(2)]
    found = [trajectory for episode in episodes for trajectory in episode.trajectories]
    assert len({trajectory.uid for trajectory in found}) == 6
    assert len({trajectory.steps[0].id for trajectory in found}) == 6
    assert len({episode.id for episode in episodes}) == 2


def test_defaults_are_not_shared_between_objects() -> None:
    first, second = Episode(), Episode()
    first.metadata["a"] = 1
    first.trajectories.append(Trajectory())
    assert second.metadata == {}
    assert second.trajectories == []


def test_a_new_episode_claims_no_reward() -> None:
    episode = Episode()
    assert episode.status is EpisodeStatus.UNGRADED
    assert episode.reward is None
    assert episode.is_correct is None


def test_the_agent_does_not_see_the_reference() -> None:
    task = Task(id="t", instruction="2 + 2?", reference={"answer": "4"})
    assert "4" not in task.for_agent().model_dump_json()
    assert task.reference == {"answer": "4"}


@pytest.mark.parametrize(
    "change",
    [
        {"exactness": Exactness.INEXACT},
        {"finish_reason": FinishReason.ABORT},
        {"logprobs": [-1.0]},
        {"logprobs": [-1.0, math.nan]},
        {"logprobs": [-1.0, -math.inf]},
        {"weight_versions": []},
        {"response_ids": [], "logprobs": [], "weight_versions": []},
    ],
)
def test_a_call_is_trainable_only_when_everything_about_it_is_known(change: dict[str, Any]) -> None:
    complete: dict[str, Any] = {"response_ids": [1, 2], "logprobs": [-1.0, -0.5], "weight_versions": [0, 0]}
    assert CapturedCall(**complete).trainable
    assert not CapturedCall(**complete | change).trainable


def test_the_tokens_of_a_call_follow_its_parents() -> None:
    root = CapturedCall(id="1", added_ids=[1, 2], response_ids=[3])
    child = CapturedCall(id="2", parent_id="1", added_ids=[4], response_ids=[5, 6])
    assert tokens_of(child, [root, child]).tolist() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(KeyError):
        tokens_of(child, [child])


def test_a_step_without_a_call_has_no_tokens() -> None:
    assert Step().response_ids.size == 0
    assert Step().logprobs.dtype == np.float32


def test_the_final_text_is_the_answer_artifact_or_the_last_reply() -> None:
    call = CapturedCall(reply={"role": "assistant", "content": "four"})
    episode = Episode(trajectories=[Trajectory(steps=[Step(output="two"), Step(call=call)])])
    assert episode.final_text() == "four"
    episode.artifacts["answer"] = "five"
    assert episode.final_text() == "five"
    assert Episode().final_text() == ""


def test_calls_are_listed_in_the_order_of_the_trajectories() -> None:
    made = [CapturedCall(id=str(number)) for number in range(3)]
    episode = Episode(
        trajectories=[
            Trajectory(steps=[Step(call=made[0]), Step()]),
            Trajectory(steps=[Step(call=each) for each in made[1:]]),
        ]
    )
    assert [call.id for call in episode.calls()] == ["0", "1", "2"]


def test_a_role_becomes_part_of_the_url_and_replaces_an_earlier_one() -> None:
    config = AgentConfig(base_url="http://h:1/sessions/s/v1", model="m", api_key="k")
    judge = config.for_agent("judge")
    assert judge.base_url == "http://h:1/sessions/s/agents/judge/v1"
    assert judge.for_agent("a b/c").base_url == "http://h:1/sessions/s/agents/a%20b%2Fc/v1"
    assert config.base_url == "http://h:1/sessions/s/v1"
    with pytest.raises(ValueError, match="must not be empty"):
        config.for_agent("")


def test_the_key_is_not_shown_in_the_repr() -> None:
    assert "secret" not in repr(AgentConfig(base_url="http://h/v1", model="m", api_key="secret"))


def test_usage_counts_start_at_nothing() -> None:
    assert Usage() == Usage(prompt_tokens=0, completion_tokens=0)
    assert arrays.ids().dtype == np.int32
