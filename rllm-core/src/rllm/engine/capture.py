"""Tie what a flow returned to what the gateway captured, explicitly and never by position.

A step finds its call by `response_id`, or by the text of the reply among the calls of its role. A match that is not
unique is an error that says how to make it so. Calls that no step claims are kept, under their role, and marked.
"""

from __future__ import annotations

from collections.abc import Sequence

from rllm.errors import AgentError
from rllm.interfaces.harness import FlowResult
from rllm.types import CapturedCall, Episode, Step, Task, Trajectory

__all__ = ["attach", "coerce_flow_result"]

_HOW = "return None, an Episode, a Trajectory or a list of Trajectories"


def coerce_flow_result(result: object, *, agent: str) -> Episode | None:
    """What a flow returned, as an Episode of its own; None when the framework shall build it.

    It is a copy, checked field by field, so that an object which a flow returns twice is not shared by two rollouts.
    Steps come without calls: only the engine says which call a step was. Raises TypeError for anything else that is
    returned, and pydantic's ValidationError for a field that holds what its type does not allow.
    """
    if result is None:
        return None
    if isinstance(result, Episode):
        fields = {**result.__dict__, "trajectories": [_own(each) for each in result.trajectories]}
        return type(result).model_validate(fields)
    if isinstance(result, Trajectory):
        return Episode(trajectories=[_own(result)])
    if isinstance(result, list) and all(isinstance(each, Trajectory) for each in result):
        return Episode(trajectories=[_own(each) for each in result])
    raise TypeError(f"agent {agent!r} returned {type(result).__name__}; {_HOW}")


def _own(trajectory: Trajectory) -> Trajectory:
    steps = [type(each).model_validate(each.__dict__) if isinstance(each, Step) else each for each in trajectory.steps]
    own = type(trajectory).model_validate({**trajectory.__dict__, "steps": steps})
    for step in own.steps:
        step.call = None
    return own


def attach(result: FlowResult, calls: Sequence[CapturedCall], *, task: Task, agent: str) -> Episode:
    """The flow's episode with every captured call in it. Raises AgentError on an ambiguous match."""
    episode = coerce_flow_result(result, agent=agent)
    if episode is None:
        return Episode(task_id=task.id, trajectories=_by_role(calls))
    unclaimed = {call.id: call for call in calls}
    for trajectory in episode.trajectories:
        for step in trajectory.steps:
            if step.call is None and (call := _find(step, trajectory, unclaimed, only=len(episode.trajectories) == 1)):
                step.call = unclaimed.pop(call.id)
    for trajectory in episode.trajectories:
        if not trajectory.steps:
            _adopt(trajectory, unclaimed, only=len(episode.trajectories) == 1)
    for trajectory in episode.trajectories:
        for step in trajectory.steps:
            _fill(step)
    if unclaimed:
        unreported = _by_role(list(unclaimed.values()))
        for trajectory in unreported:
            trajectory.trainable = False
        episode.trajectories = [*episode.trajectories, *unreported]
    return episode


def _by_role(calls: Sequence[CapturedCall]) -> list[Trajectory]:
    roles: dict[str, Trajectory] = {}
    for call in calls:
        trajectory = roles.get(call.role)
        if trajectory is None:
            trajectory = roles[call.role] = Trajectory(name=call.role)
        step = Step(call=call, response_id=call.response_id)
        _fill(step)
        trajectory.steps.append(step)
    return list(roles.values())


def _belongs(call: CapturedCall, trajectory: Trajectory, *, only: bool) -> bool:
    """Whether a call may be a step of the trajectory: same role, or the episode has only this trajectory."""
    return call.role == trajectory.name or (only and call.role == "default")


def _find(step: Step, trajectory: Trajectory, unclaimed: dict[str, CapturedCall], *, only: bool) -> CapturedCall | None:
    if step.response_id is not None:
        found = [call for call in unclaimed.values() if call.response_id == step.response_id]
        if len(found) != 1:
            raise AgentError(
                f"trajectory {trajectory.name!r}: {len(found)} captured calls have the response id "
                f"{step.response_id!r}, expected exactly 1"
            )
        return found[0]
    text = step.output if isinstance(step.output, str) else None
    if text is None:
        return None
    found = [
        call
        for call in unclaimed.values()
        if _belongs(call, trajectory, only=only) and (call.reply.get("content") or "").strip() == text.strip()
    ]
    if len(found) > 1:
        raise AgentError(
            f"trajectory {trajectory.name!r}: {len(found)} captured calls replied {text[:60]!r}; "
            "set Step.response_id to the id of the model's response to say which"
        )
    return found[0] if found else None


def _adopt(trajectory: Trajectory, unclaimed: dict[str, CapturedCall], *, only: bool) -> None:
    for call in list(unclaimed.values()):
        if _belongs(call, trajectory, only=only):
            trajectory.steps.append(Step(call=unclaimed.pop(call.id), response_id=call.response_id))


def _fill(step: Step) -> None:
    """Fill in what the flow left out; never overwrite what it set. Raises AgentError for advantages that do not fit."""
    if step.call is None:
        return
    if step.advantages is not None and step.advantages.size != step.call.response_ids.size:
        raise AgentError(
            f"step {step.id!r} has {step.advantages.size} advantages for {step.call.response_ids.size} sampled tokens; "
            "give one per token"
        )
    reply = step.call.reply
    if step.output is None:
        step.output = reply.get("content") or ""
    if not step.thought and isinstance(thought := reply.get("reasoning_content"), str):
        step.thought = thought
    if step.response_id is None:
        step.response_id = step.call.response_id
