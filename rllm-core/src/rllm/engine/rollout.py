"""One rollout, start to end: open a session, run the agent, capture its calls, grade, release.

Whatever goes wrong becomes a status on the episode. Only cancellation of the whole run passes through. Infrastructure
failures are retried with backoff, each attempt in a fresh session; everything else is the rollout's result.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from rllm.engine.capture import attach
from rllm.engine.functions import coerce_eval_output
from rllm.errors import (
    AgentError,
    ContextOverflow,
    GradingError,
    InfraError,
    RllmError,
    RolloutTimeout,
    UpstreamError,
    boundary,
    one_line,
)
from rllm.gateway import Gateway, Session, SessionSpec, Trace
from rllm.ids import RolloutKey, derive_seed, new_id
from rllm.interfaces.harness import Closable, Harness
from rllm.types import (
    CapturedCall,
    Episode,
    EpisodeStatus,
    ErrorInfo,
    FinishReason,
    JsonDict,
    Task,
    Termination,
)

__all__ = ["Limits", "Program", "RolloutRequest", "run_rollout"]

logger = logging.getLogger(__name__)

_ABANDONED = (404, 499)
"""Statuses of calls that ended because the agent had gone; they say nothing of why it went."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is run on every task: an agent, and how its episodes are graded."""

    harness: Harness
    grader: Any
    """Object with `grade(task, episode)`, sync (returns within milliseconds) or async."""
    name: str = "agent"

    async def close(self) -> None:
        """Close what the agent holds open, if it says how; idempotent."""
        if isinstance(self.harness, Closable):
            async with boundary(AgentError, f"agent {self.name!r}"):
                await self.harness.close()


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one rollout."""

    timeout_s: float = 600.0
    """For the agent; grading has the same again."""
    max_retries: int = 2
    """Further attempts after an infrastructure failure."""
    max_calls: int | None = None
    backoff_s: float = 0.5
    """First wait; doubles."""


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """One attempt to be made."""

    task: Task
    attempt: int
    seed: int
    sampling: JsonDict = field(default_factory=dict)
    """Canonical sampling parameters that the gateway enforces."""
    is_validation: bool = False
    metadata: JsonDict = field(default_factory=dict)
    """Copied to the agent's config and to the episode."""

    @property
    def key(self) -> RolloutKey:
        return RolloutKey(self.task.id, self.attempt)


async def run_rollout(program: Program, request: RolloutRequest, gateway: Gateway, limits: Limits) -> Episode:
    """Make one attempt, with retries of infrastructure failures. Never raises but for cancellation."""
    started = time.perf_counter()
    retries = 0
    while True:
        episode = await _attempt(program, request, gateway, limits, retries)
        if episode.status is not EpisodeStatus.INFRA_ERROR or retries >= limits.max_retries:
            break
        await asyncio.sleep(limits.backoff_s * 2**retries)
        retries += 1
    episode.metrics["seconds"] = time.perf_counter() - started
    if retries:
        episode.metrics["retries"] = float(retries)
    return episode


async def _attempt(program: Program, request: RolloutRequest, gateway: Gateway, limits: Limits, retry: int) -> Episode:
    session = gateway.open_session(
        SessionSpec(
            id=new_id("s"),
            sampling=request.sampling,
            max_calls=limits.max_calls,
            is_validation=request.is_validation,
            seed=derive_seed(request.seed, retry) if retry else request.seed,
        )
    )
    result: Any = None
    error: BaseException | None = None
    try:
        result, error = await _run_agent(program, request, session, limits)
    finally:
        trace = await session.close()
    episode = _capture(program, request, trace, result, error)
    if episode.error is None:
        await _grade(program, request.task, episode, limits)
    return episode


async def _run_agent(
    program: Program, request: RolloutRequest, session: Session, limits: Limits
) -> tuple[Any, BaseException | None]:
    """The flow's result, or what it raised. A deadline cancels the flow."""
    config = session.agent_config(metadata=request.metadata)
    who = f"agent {program.name!r}"
    try:
        async with asyncio.timeout(limits.timeout_s), boundary(AgentError, who):
            return await program.harness.run(request.task.for_agent(), config, None), None
    except RllmError as error:
        return None, error
    except TimeoutError:
        return None, RolloutTimeout(f"{who} was still running after {limits.timeout_s:g} s")
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        return None, AgentError(f"{who} ended by cancelling itself")


def _is_cancelled() -> bool:
    """Whether it is the rollout that is being cancelled, rather than something inside an agent or grader."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _capture(
    program: Program, request: RolloutRequest, trace: Trace, result: Any, error: BaseException | None
) -> Episode:
    calls = trace.calls
    if error is None:
        try:
            with boundary(AgentError, f"agent {program.name!r}"):
                episode = attach(result, calls, task=request.task, agent=program.name)
        except RllmError as raised:
            error, episode = raised, attach(None, calls, task=request.task, agent=program.name)
    else:
        episode = attach(None, calls, task=request.task, agent=program.name)
    episode.task_id = request.task.id
    episode.attempt = request.attempt
    episode.task = request.task
    episode.metadata = {**request.metadata, **episode.metadata}
    episode.termination = _termination(trace, calls, error, episode.termination)
    if episode.error is not None:
        _fail(episode, EpisodeStatus.AGENT_ERROR, episode.error)
    if error is not None:
        status, error = _blame(trace, error)
        _fail(episode, status, _describe(error, "agent"))
    _count(episode, calls, trace)
    return episode


def _blame(trace: Trace, error: BaseException) -> tuple[EpisodeStatus, BaseException]:
    """Whose fault it was, from what the gateway saw: an agent that dies of a model server's failure is not to blame."""
    if isinstance(error, RolloutTimeout):
        return EpisodeStatus.TIMEOUT, error
    if isinstance(error, InfraError | UpstreamError):
        return EpisodeStatus.INFRA_ERROR, error
    last = next((each for each in reversed(trace.errors) if each.status not in _ABANDONED), None)
    if last is not None and last.is_upstream and not (trace.calls and trace.calls[-1].started_at > last.at):
        failure = InfraError(f"{last.message}; then {one_line(error)}")
        return EpisodeStatus.INFRA_ERROR, failure.with_traceback(error.__traceback__)
    return EpisodeStatus.AGENT_ERROR, error


def _termination(
    trace: Trace, calls: list[CapturedCall], error: BaseException | None, said: Termination
) -> Termination:
    """From evidence; what the flow said counts where there is none but the last reply."""
    if isinstance(error, RolloutTimeout):
        return Termination.DEADLINE
    if trace.termination is not None:
        return trace.termination
    if isinstance(error, ContextOverflow):
        return Termination.CONTEXT_LENGTH
    if error is not None:
        return Termination.ERROR
    if said is not Termination.FINISHED:
        return said
    if calls and calls[-1].finish_reason is FinishReason.LENGTH:
        return Termination.MAX_TOKENS
    return Termination.FINISHED


def _fail(episode: Episode, status: EpisodeStatus, error: ErrorInfo) -> None:
    """A failed episode carries no reward, whatever the flow put there."""
    episode.status, episode.error = status, error
    episode.reward = episode.is_correct = None


def _describe(error: BaseException, phase: str) -> ErrorInfo:
    cause = error.__cause__ or error
    return ErrorInfo(
        kind=type(error).__name__,
        message=one_line(error),
        phase=phase,
        traceback="".join(traceback.format_exception(cause, limit=-8)),
    )


def _count(episode: Episode, calls: list[CapturedCall], trace: Trace) -> None:
    metrics = episode.metrics
    metrics["calls"] = float(len(calls))
    metrics["call_errors"] = float(len(trace.errors))
    metrics["prompt_tokens"] = float(sum(call.usage.prompt_tokens for call in calls))
    metrics["completion_tokens"] = float(sum(call.usage.completion_tokens for call in calls))
    metrics["model_seconds"] = sum(call.duration_s for call in calls)
    for exactness, count in trace.ledger.items():
        metrics[f"calls_{exactness}"] = float(count)


async def _grade(program: Program, task: Task, episode: Episode, limits: Limits) -> None:
    who = f"grader of {program.name!r}"
    try:
        async with asyncio.timeout(limits.timeout_s), boundary(GradingError, who):
            value = program.grader.grade(task, episode)
            if inspect.isawaitable(value):
                value = await value
            output = coerce_eval_output(value, who=who)
    except RllmError as error:
        _fail(episode, EpisodeStatus.UNGRADED, _describe(error, "grade"))
    except TimeoutError:
        late = GradingError(f"{who} was still running after {limits.timeout_s:g} s")
        _fail(episode, EpisodeStatus.UNGRADED, _describe(late, "grade"))
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        cancelled = GradingError(f"{who} ended by cancelling itself")
        _fail(episode, EpisodeStatus.UNGRADED, _describe(cancelled, "grade"))
    else:
        episode.status = EpisodeStatus.GRADED
        episode.reward = output.reward
        episode.is_correct = output.is_correct
        episode.signals = output.signals
        if output.metadata:
            episode.metadata = {**episode.metadata, "grading": output.metadata}
