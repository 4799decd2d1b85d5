"""One tree of errors, and a boundary that blames the plugin once."""

from __future__ import annotations

import asyncio

import pytest

from rllm import errors
from rllm.errors import (
    AgentError,
    BackendError,
    ConfigError,
    DataError,
    DuplicateName,
    GradingError,
    MissingDependency,
    RllmError,
    RolloutTimeout,
    StoreError,
    UnknownName,
    UpstreamError,
    boundary,
    one_line,
)


def test_every_public_error_is_in_the_tree() -> None:
    found = [getattr(errors, name) for name in errors.__all__ if name[0].isupper()]
    assert len(found) > 15
    assert all(issubclass(each, RllmError) for each in found)


@pytest.mark.parametrize(
    ("kind", "standard"),
    [
        (ConfigError, ValueError),
        (UnknownName, LookupError),
        (DuplicateName, RuntimeError),
        (MissingDependency, ImportError),
        (DataError, ValueError),
        (StoreError, OSError),
        (RolloutTimeout, TimeoutError),
        (GradingError, RuntimeError),
        (BackendError, RuntimeError),
    ],
)
def test_each_error_is_also_the_standard_one(kind: type[RllmError], standard: type[Exception]) -> None:
    with pytest.raises(standard, match="because"):
        raise kind("because")


def test_a_config_error_lists_every_fault() -> None:
    error = ConfigError("first", "second")
    assert error.faults == ("first", "second")
    assert str(error) == "first\nsecond"
    assert ConfigError().faults


@pytest.mark.parametrize("raised", [ValueError("bad"), KeyError("k"), SystemExit(3), TimeoutError("late")])
def test_what_a_plugin_raises_is_attributed_to_it(raised: BaseException) -> None:
    with pytest.raises(GradingError, match="grader 'x'") as caught, boundary(GradingError, "grader 'x'"):
        raise raised
    assert type(raised).__name__ in str(caught.value)
    assert caught.value.__cause__ is raised


def test_our_own_errors_pass_the_boundary_unchanged() -> None:
    mine = UpstreamError("down", status=503, retry_after="7")
    with pytest.raises(UpstreamError) as caught, boundary(AgentError, "agent 'x'"):
        raise mine
    assert caught.value is mine
    assert (mine.status, mine.retry_after) == (503, "7")


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
def test_interruptions_are_nobodys_fault(raised: BaseException) -> None:
    with pytest.raises(type(raised)), boundary(AgentError, "agent 'x'"):
        raise raised


async def test_the_async_boundary_does_the_same() -> None:

    async def fail() -> None:
        async with boundary(AgentError, "agent 'x'"):
            await asyncio.sleep(0)
            raise ZeroDivisionError

    async def dawdle() -> None:
        async with asyncio.timeout(0.01), boundary(AgentError, "agent 'x'"):
            await asyncio.sleep(5)

    with pytest.raises(AgentError, match=r"agent 'x': ZeroDivisionError"):
        await fail()
    with pytest.raises(TimeoutError) as caught:
        await dawdle()
    assert not isinstance(caught.value, RllmError)


def test_an_error_without_text_is_shown_by_its_name() -> None:
    assert one_line(ZeroDivisionError()) == "ZeroDivisionError"
    assert one_line(ValueError("a\n  b")) == "a b"
    assert one_line(ConfigError("a", "b"), faults=("a", "b")) == "a; b"
