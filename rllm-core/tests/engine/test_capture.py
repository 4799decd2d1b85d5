import pytest

from rllm import arrays
from rllm.engine.capture import attach
from rllm.errors import AgentError
from rllm.types import CapturedCall, Episode, Step, Task, Trajectory

TASK = Task(id="a:b/c", instruction="go")


def call(text: str, *, role: str = "default", response_id: str = "") -> CapturedCall:
    return CapturedCall(role=role, response_id=response_id or f"r-{text}", reply={"role": "assistant", "content": text})


def test_none_builds_one_trajectory_for_each_role() -> None:
    episode = attach(None, [call("1"), call("2", role="judge"), call("3")], task=TASK, agent="x")
    assert [(t.name, [s.output for s in t.steps]) for t in episode.trajectories] == [
        ("default", ["1", "3"]),
        ("judge", ["2"]),
    ]


def test_steps_find_their_calls_by_response_id_whatever_the_order() -> None:
    calls = [call("same", response_id="r1"), call("same", response_id="r2")]
    flow = Trajectory(steps=[Step(response_id="r2", reward=2.0), Step(response_id="r1", reward=1.0)])
    episode = attach(flow, calls, task=TASK, agent="x")
    assert [(s.call.response_id, s.reward) for s in episode.trajectories[0].steps if s.call] == [
        ("r2", 2.0),
        ("r1", 1.0),
    ]


def test_steps_find_their_calls_by_text() -> None:
    flow = Trajectory(steps=[Step(output="two"), Step(output="one\n")])
    episode = attach(flow, [call("one"), call("two")], task=TASK, agent="x")
    assert [s.call.reply["content"] for s in episode.trajectories[0].steps if s.call] == ["two", "one"]


def test_an_ambiguous_text_is_an_error_that_says_how_to_resolve_it() -> None:
    flow = Trajectory(steps=[Step(output="same")])
    with pytest.raises(AgentError, match="set Step.response_id"):
        attach(flow, [call("same", response_id="1"), call("same", response_id="2")], task=TASK, agent="x")


def test_an_unknown_response_id_is_an_error() -> None:
    with pytest.raises(AgentError, match="0 captured calls"):
        attach(Trajectory(steps=[Step(response_id="nope")]), [call("a")], task=TASK, agent="x")


def test_calls_that_the_flow_does_not_report_are_kept_and_not_trainable() -> None:
    episode = attach(Trajectory(steps=[Step(output="a")]), [call("a"), call("title")], task=TASK, agent="x")
    reported, rest = episode.trajectories
    assert reported.trainable
    assert [s.output for s in rest.steps] == ["title"]
    assert not rest.trainable


def test_a_trajectory_without_steps_takes_the_calls_of_its_role_only() -> None:
    calls = [call("1", role="solver"), call("2", role="judge")]
    episode = attach([Trajectory(name="solver"), Trajectory(name="judge")], calls, task=TASK, agent="x")
    assert [[s.output for s in t.steps] for t in episode.trajectories] == [["1"], ["2"]]


def test_what_the_flow_set_survives() -> None:
    step = Step(output="a", action="42", reward=0.5, done=True, thought="mine", metadata={"k": 1})
    episode = attach(Episode(trajectories=[Trajectory(steps=[step])]), [call("a")], task=TASK, agent="x")
    kept = episode.trajectories[0].steps[0]
    assert (kept.action, kept.reward, kept.done, kept.thought, kept.metadata) == (
        "42",
        0.5,
        True,
        "mine",
        {"k": 1},
    )


@pytest.mark.parametrize("result", [1, "text", {"a": 1}, [1], (Trajectory(),)])
def test_anything_else_is_a_type_error_that_shows_how(result: object) -> None:
    with pytest.raises(TypeError, match="return None, an Episode, a Trajectory or a list"):
        attach(result, [], task=TASK, agent="x")  # type: ignore[arg-type]


def test_the_final_text_is_the_reported_reply_even_if_other_calls_were_made_after_it() -> None:
    flow = Trajectory(name="solver", steps=[Step(response_id="r1")])
    calls = [call("answer", role="solver", response_id="r1"), call("never mind", role="judge", response_id="r2")]
    episode = attach(flow, calls, task=TASK, agent="x")
    assert [(t.name, t.trainable) for t in episode.trajectories] == [("solver", True), ("judge", False)]
    assert episode.final_text() == "answer"
    assert attach(Episode(), calls, task=TASK, agent="x").final_text() == "never mind"


def test_one_step_in_two_trajectories_is_trained_on_once() -> None:
    step = Step(output="one")
    flow = [Trajectory(name="a", steps=[step]), Trajectory(name="b", steps=[step])]
    episode = attach(flow, [call("one", role="a")], task=TASK, agent="x")
    assert len(list(episode.calls())) == 1


def test_advantages_that_do_not_fit_the_reply_are_the_agents_error() -> None:
    captured = call("a")
    captured.response_ids = arrays.ids([1, 2])
    flow = Trajectory(steps=[Step(output="a", advantages=arrays.floats([0.5]))])
    with pytest.raises(AgentError, match="1 advantages for 2 sampled tokens"):
        attach(flow, [captured], task=TASK, agent="x")
