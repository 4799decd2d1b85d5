"""Agents and evaluators written as plain functions: `@rllm.rollout` and `@rllm.evaluator`.

The decorators only mark and check; `as_harness` and `as_grader` accept decorated functions, undecorated functions
and objects of the corresponding Protocols. Synchronous functions run in threads of their own, so that none of them
can block the event loop or starve another.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import math
import numbers
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from rllm.errors import GradingError
from rllm.interfaces.harness import FlowResult, Harness
from rllm.interfaces.sandbox import Sandbox
from rllm.types import AgentConfig, Episode, EvalOutput, Task

__all__ = [
    "FunctionGrader",
    "FunctionHarness",
    "as_grader",
    "as_harness",
    "coerce_eval_output",
    "evaluator",
    "rollout",
]

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Run `function(*args)` in a daemon thread of its own. Cancelling abandons the thread, which cannot be killed."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(cast(T, result))
        elif isinstance(error, StopIteration):
            future.set_exception(RuntimeError("the function raised StopIteration"))
        else:
            future.set_exception(error)

    def work() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = context.run(function, *args)
        except BaseException as raised:  # noqa: BLE001 - handed to the awaiting task, unchanged
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=work, name=getattr(function, "__name__", "flow"), daemon=True).start()
    return await future


class _Function(Generic[P, T]):
    """A wrapped function; calling it calls the function."""

    def __init__(self, function: Callable[P, T], *, name: str | None = None) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name or getattr(function, "__name__", type(function).__name__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.function(*args, **kwargs)

    async def invoke(self, *args: Any) -> Any:
        target = self.function if inspect.isroutine(self.function) else type(self.function).__call__
        if inspect.iscoroutinefunction(target):
            return await cast(Awaitable[Any], cast(Callable[..., Any], self.function)(*args))
        result = await in_thread(cast(Callable[..., Any], self.function), *args)
        return await result if inspect.isawaitable(result) else result


class FunctionHarness(_Function[P, T]):
    """`function(task, config)` or `function(task, config, env)`, sync or async, as a harness."""

    def __init__(self, function: Callable[P, T], *, name: str | None = None) -> None:
        super().__init__(function, name=name)
        self.takes_env = "env" in _positional(function, 2, "an agent function", "(task, config)")

    async def run(self, task: Task, config: AgentConfig, env: Sandbox | None) -> FlowResult:
        args = (task, config, env) if self.takes_env else (task, config)
        return cast(FlowResult, await self.invoke(*args))


class FunctionGrader(_Function[P, T]):
    """`function(task, episode)`, sync or async, returning an EvalOutput, a number or (reward, is_correct)."""

    def __init__(self, function: Callable[P, T], *, name: str | None = None) -> None:
        super().__init__(function, name=name)
        _positional(function, 2, "an evaluator", "(task, episode)")

    async def grade(self, task: Task, episode: Episode) -> EvalOutput:
        return coerce_eval_output(await self.invoke(task, episode), who=f"evaluator {self.name!r}")


def _positional(function: Callable[..., Any], wanted: int, what: str, shape: str) -> list[str]:
    """Names of the parameters, checked to accept `wanted` positional arguments."""
    parameters = inspect.signature(function).parameters
    try:
        inspect.signature(function).bind(*range(wanted))
    except TypeError:
        if "env" not in parameters or len(parameters) != wanted + 1:
            raise TypeError(
                f"{what} must accept {shape}, but {getattr(function, '__name__', function)!r} "
                f"takes ({', '.join(parameters)})"
            ) from None
    return list(parameters)


@overload
def rollout(function: Callable[P, T], /) -> FunctionHarness[P, T]: ...
@overload
def rollout(*, name: str) -> Callable[[Callable[P, T]], FunctionHarness[P, T]]: ...
def rollout(function: Callable[P, T] | None = None, /, *, name: str | None = None) -> Any:
    """Mark `function(task, config)` as an agent program. It stays callable as it was.

    It may return None (the framework builds everything from the captured calls), an Episode, a Trajectory or a list
    of Trajectories.
    """
    if function is None:
        return lambda inner: FunctionHarness(inner, name=name)
    return FunctionHarness(function)


@overload
def evaluator(function: Callable[P, T], /) -> FunctionGrader[P, T]: ...
@overload
def evaluator(*, name: str) -> Callable[[Callable[P, T]], FunctionGrader[P, T]]: ...
def evaluator(function: Callable[P, T] | None = None, /, *, name: str | None = None) -> Any:
    """Mark `function(task, episode)` as an evaluator. It stays callable as it was.

    It returns an EvalOutput, a finite number, a bool, or (reward, is_correct). Raise to leave the episode ungraded.
    """
    if function is None:
        return lambda inner: FunctionGrader(inner, name=name)
    return FunctionGrader(function)


def as_harness(value: Any) -> Harness:
    """`value` as a harness: an object with `run`, or a function."""
    if hasattr(value, "run"):
        return cast(Harness, value)
    if callable(value):
        return FunctionHarness(value)
    raise TypeError(f"expected an agent function (task, config) or an object with run(), got {value!r}")


def as_grader(value: Any) -> Any:
    """`value` as a grader: an object with `grade` or `evaluate`, or a function."""
    if hasattr(value, "grade"):
        return value
    if hasattr(value, "evaluate"):
        return FunctionGrader(value.evaluate, name=type(value).__name__)
    if callable(value):
        return FunctionGrader(value)
    raise TypeError(f"expected an evaluator function (task, episode) or an object with grade(), got {value!r}")


def coerce_eval_output(value: Any, *, who: str) -> EvalOutput:
    """What an evaluator returned, as an EvalOutput with a finite reward.

    A bare number r is the reward and is correct if r >= 1; True is 1.0 and False 0.0; numpy scalars count as
    numbers. Strings, None, lists, NaN and infinities raise GradingError: the episode is then ungraded.
    """
    if isinstance(value, EvalOutput):
        output = value
    elif isinstance(value, tuple) and len(value) == 2:
        output = EvalOutput.model_construct(
            reward=_number(value[0], who), is_correct=bool(_number(value[1], who)), signals=[], metadata={}
        )
    else:
        reward = _number(value, who)
        output = EvalOutput.model_construct(reward=reward, is_correct=reward >= 1.0, signals=[], metadata={})
    if not math.isfinite(output.reward):
        raise GradingError(f"{who} gave the reward {output.reward!r}, expected a finite number")
    return output


def _number(value: Any, who: str) -> float:
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, numbers.Real):
        return float(value)
    raise GradingError(
        f"{who} returned {value!r:.80}, expected EvalOutput(reward=…), a number, a bool or (reward, is_correct)"
    )
