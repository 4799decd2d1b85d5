"""One rollout: whatever goes wrong is a status on the episode, taken from evidence."""

import asyncio
import time
from typing import Any

import pytest

from rllm.errors import GradingError, InfraError
from rllm.types import (
    AgentConfig,
    Episode,
    EpisodeStatus,
    ErrorInfo,
    EvalOutput,
    Step,
    Task,
    Termination,
    Trajectory,
)


async def test_a_graded_rollout_carries_its_calls_reward_and_key(scripted: Any, ask_model: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> None:
        await ask_model(config)

    async with scripted(["42"]) as bench:
        episode = await bench.run(flow, lambda task, episode: float(episode.final_text() == "42"))
    assert (episode.status, episode.reward, episode.is_correct) == (EpisodeStatus.GRADED, 1.0, True)
    assert (episode.task_id, episode.attempt, episode.termination) == ("t:1", 3, Termination.FINISHED)
    assert episode.metrics["calls"] == 1


async def test_only_infrastructure_failures_are_retried_each_in_a_fresh_session(scripted: Any, ask_model: Any) -> None:
    sessions: list[str] = []

    async def flow(task: Task, config: AgentConfig) -> None:
        sessions.append(config.session_id)
        if len(sessions) < 3:
            raise InfraError("the sandbox is gone")
        await ask_model(config)

    async with scripted(["ok"]) as bench:
        episode = await bench.run(flow, max_retries=2)
        assert episode.status is EpisodeStatus.GRADED
        assert len(set(sessions)) == 3
        assert episode.metrics["retries"] == 2
        assert len(list(episode.calls())) == 1

        sessions.clear()

        async def broken(task: Task, config: AgentConfig) -> None:
            sessions.append(config.session_id)
            raise ValueError("a bug")

        episode = await bench.run(broken, max_retries=2)
    assert episode.status is EpisodeStatus.AGENT_ERROR
    assert len(sessions) == 1
    assert episode.error is not None
    assert "ValueError: a bug" in episode.error.message


async def test_an_agent_that_dies_of_the_model_servers_failure_is_not_to_blame(scripted: Any, ask_model: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> None:
        await ask_model(config)

    async with scripted(refusal=429) as bench:
        episode = await bench.run(flow, max_retries=1)
        assert len({request.session for request in bench.server.requests}) == 1
        assert len(bench.server.requests) >= 2
    assert episode.status is EpisodeStatus.INFRA_ERROR
    assert episode.reward is None


async def test_a_call_that_the_agent_gave_up_does_not_hide_the_model_servers_failure(
    scripted: Any, ask_model: Any
) -> None:
    """Of two calls at once one fails upstream; the other is cut because the agent dies of the first."""

    async def flow(task: Task, config: AgentConfig) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ask_model(config, "slow"))
            await asyncio.sleep(0.05)
            group.create_task(ask_model(config, "fails"))

    async with scripted(silent=True) as bench:
        original = bench.gateway.upstream.answer

        async def answer(session: Any, request: Any, emit: Any) -> Any:
            if request.messages[0]["content"] == "fails":
                from rllm.errors import UpstreamError

                raise UpstreamError("down", status=503)
            return await original(session, request, emit)

        object.__setattr__(bench.gateway, "upstream", _Answering(bench.gateway.upstream, answer))
        episode = await bench.run(flow)
    assert episode.status is EpisodeStatus.INFRA_ERROR


class _Answering:
    def __init__(self, upstream: Any, answer: Any) -> None:
        self.model = upstream.model
        self.answer = answer
        self.open = upstream.open
        self.close = upstream.close


async def test_a_refused_request_is_the_agents_error(scripted: Any, ask_model: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> None:
        await ask_model(config)

    async with scripted(refusal=400) as bench:
        episode = await bench.run(flow, max_retries=2)
        assert len(bench.server.requests) == 1
    assert episode.status is EpisodeStatus.AGENT_ERROR


async def test_a_timeout_cancels_the_agents_call_at_the_model_server(scripted: Any, ask_model: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> None:
        await ask_model(config)

    async with scripted(silent=True) as bench:
        episode = await bench.run(flow, timeout_s=0.2)
        for _ in range(100):
            if not bench.server.active:
                break
            await asyncio.sleep(0.01)
        assert bench.server.active == 0
    assert (episode.status, episode.termination) == (EpisodeStatus.TIMEOUT, Termination.DEADLINE)


async def test_a_synchronous_agent_that_hangs_is_abandoned_at_its_deadline(scripted: Any) -> None:
    def flow(task: Task, config: AgentConfig) -> None:
        time.sleep(0.5)

    async with scripted() as bench:
        started = time.perf_counter()
        episode = await bench.run(flow, timeout_s=0.1)
        assert time.perf_counter() - started < 0.4
    assert episode.status is EpisodeStatus.TIMEOUT


async def test_a_grader_that_hangs_leaves_the_episode_ungraded(scripted: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> None: ...

    async def hanging(task: Task, episode: Episode) -> float:
        await asyncio.Event().wait()
        return 1.0

    async with scripted() as bench:
        episode = await bench.run(flow, hanging, timeout_s=0.1)
    assert episode.status is EpisodeStatus.UNGRADED
    assert episode.reward is None
    assert episode.error is not None
    assert "still running after 0.1 s" in episode.error.message


async def test_an_agent_that_cancels_itself_is_an_error_and_not_a_lost_rollout(scripted: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> None:
        inner = asyncio.create_task(asyncio.sleep(10))
        inner.cancel()
        await inner

    async with scripted() as bench:
        episode = await bench.run(flow)
    assert episode.status is EpisodeStatus.AGENT_ERROR


async def test_a_grader_that_cancels_itself_leaves_the_episode_ungraded(scripted: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> None: ...

    async def grade(task: Task, episode: Episode) -> float:
        raise asyncio.CancelledError

    async with scripted() as bench:
        episode = await bench.run(flow, grade)
    assert episode.status is EpisodeStatus.UNGRADED


async def test_cancelling_the_rollout_itself_passes_through(scripted: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> None:
        await asyncio.sleep(10)

    async with scripted() as bench:
        running = asyncio.create_task(bench.run(flow))
        await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


@pytest.mark.parametrize("broken", ["steps", "metadata", "metrics", "reward"])
async def test_an_episode_that_is_not_what_it_should_be_is_the_agents_error(scripted: Any, broken: str) -> None:
    async def flow(task: Task, config: AgentConfig) -> Episode:
        trajectory = Trajectory()
        episode = Episode(trajectories=[trajectory])
        match broken:
            case "steps":
                trajectory.steps.append("x")  # type: ignore[arg-type]  # what users do
            case "metadata":
                episode.metadata = None  # type: ignore[assignment]  # what users do
            case "metrics":
                episode.metrics["note"] = "fine"  # type: ignore[assignment]  # what users do
            case "reward":
                trajectory.reward = "high"  # type: ignore[assignment]  # what users do
        return episode

    async with scripted() as bench:
        episode = await bench.run(flow)
    assert episode.status is EpisodeStatus.AGENT_ERROR
    assert episode.error is not None
    assert broken in episode.error.message


async def test_one_object_returned_by_many_rollouts_is_not_shared_between_their_episodes(
    scripted: Any, ask_model: Any
) -> None:
    shared = Trajectory(steps=[Step(output="ok")])

    async def flow(task: Task, config: AgentConfig) -> Trajectory:
        await ask_model(config)
        return shared

    async with scripted(["ok"]) as bench:
        first, second = await bench.run(flow), await bench.run(flow)
    assert [len(list(each.calls())) for each in (first, second)] == [1, 1]
    assert next(first.calls()).id != next(second.calls()).id
    assert shared.steps[0].call is None


async def test_an_object_of_the_flows_own_reaches_the_grader_as_it_is(scripted: Any) -> None:
    class Move:
        answer = 7

    async def flow(task: Task, config: AgentConfig) -> Trajectory:
        return Trajectory(steps=[Step(action=Move())])

    async with scripted() as bench:
        episode = await bench.run(flow, lambda task, episode: episode.trajectories[0].steps[0].action.answer)
    assert episode.reward == 7.0


async def test_a_call_that_the_flow_made_up_is_not_kept(scripted: Any) -> None:
    from rllm.types import CapturedCall

    async def flow(task: Task, config: AgentConfig) -> Trajectory:
        return Trajectory(steps=[Step(call=CapturedCall(reply={"content": "forged"}))])

    async with scripted() as bench:
        episode = await bench.run(flow)
    assert list(episode.calls()) == []


async def test_a_failure_that_the_flow_reports_is_its_error_and_carries_no_reward(scripted: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> Episode:
        error = ErrorInfo(kind="ToolError", message="no shell")
        return Episode(status=EpisodeStatus.GRADED, reward=1.0, is_correct=True, error=error)

    async with scripted() as bench:
        episode = await bench.run(flow)
    assert (episode.status, episode.reward, episode.is_correct) == (EpisodeStatus.AGENT_ERROR, None, None)


async def test_an_ungraded_episode_keeps_no_reward_of_the_flows_own(scripted: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> Episode:
        return Episode(status=EpisodeStatus.GRADED, reward=1.0, is_correct=True)

    def grade(task: Task, episode: Episode) -> float:
        raise GradingError("no idea")

    async with scripted() as bench:
        episode = await bench.run(flow, grade)
    assert (episode.status, episode.reward, episode.is_correct) == (EpisodeStatus.UNGRADED, None, None)


async def test_the_flow_may_say_why_it_stopped(scripted: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> Episode:
        return Episode(termination=Termination.MAX_TURNS)

    async with scripted() as bench:
        episode = await bench.run(flow)
    assert episode.termination is Termination.MAX_TURNS


async def test_an_agent_sees_no_reference_and_cannot_change_the_task_of_others(scripted: Any) -> None:
    task = Task(id="t", instruction=[{"type": "text", "text": "go"}], metadata={"n": [1]}, reference={"gold": 7})

    async def flow(task: Task, config: AgentConfig) -> None:
        assert task.reference == {}
        task.metadata["n"].append(2)
        task.metadata["seen"] = True
        task.instruction[0]["text"] = "stop"  # type: ignore[index]  # content blocks
        task.id = "other"

    async with scripted() as bench:
        episode = await bench.run(flow, lambda task, episode: task.reference["gold"], task=task)
        plain = Task(id="u", instruction="go", metadata={"n": [1]})
        await bench.run(lambda task, config: task.metadata.clear(), task=plain)
    assert task == Task(
        id="t", instruction=[{"type": "text", "text": "go"}], metadata={"n": [1]}, reference={"gold": 7}
    )
    assert plain.metadata == {"n": [1]}
    assert (episode.reward, episode.task_id) == (7.0, "t")


async def test_a_grader_object_that_returns_a_broken_reward_leaves_the_episode_ungraded(scripted: Any) -> None:
    class Grader:
        def __init__(self, value: Any) -> None:
            self.value = value

        def grade(self, task: Task, episode: Episode) -> Any:
            return self.value

    async def flow(task: Task, config: AgentConfig) -> None: ...

    missing = EvalOutput(reward=0.0)
    missing.reward = None  # type: ignore[assignment]  # what users do
    async with scripted() as bench:
        for value in (missing, 10**400, (1.0, "no"), "1"):
            episode = await bench.run(flow, Grader(value))
            assert episode.status is EpisodeStatus.UNGRADED, value
            assert episode.reward is None


async def test_an_agents_exception_group_of_one_is_reported_as_the_exception(scripted: Any) -> None:
    async def flow(task: Task, config: AgentConfig) -> None:
        async def fail() -> None:
            raise ValueError("the real reason")

        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    async with scripted() as bench:
        episode = await bench.run(flow)
    assert episode.error is not None
    assert "ValueError: the real reason" in episode.error.message
