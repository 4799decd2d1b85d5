"""What the kits are made of: tests that run in an event loop of their own, under a deadline, without a plugin."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import pytest

__all__ = ["Kit", "fill_in", "promise"]


class Kit:
    """A conformance kit. Attributes may be overridden in the subclass."""

    deadline_s: float = 120.0
    """Seconds that one promise may take before it counts as broken."""


def fill_in(fixture: str, kit: str, what: str) -> NoReturn:
    """Fail because the subclass did not override its fixture."""
    pytest.fail(f"override the fixture {fixture!r} of {kit} to return {what}")


def promise(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """An asynchronous test method as an ordinary one, so that authors need no asyncio plugin."""

    @functools.wraps(test)
    def run(self: Kit, *args: Any, **kwargs: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(self.deadline_s) as deadline:
                await test(self, *args, **kwargs)
            assert not deadline.expired()

        try:
            asyncio.run(bounded())
        except TimeoutError as error:
            raise AssertionError(f"the promise was not kept within {self.deadline_s} s") from error

    # Without these pytest would see the coroutine function behind the wrapper.
    del run.__wrapped__
    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]  # functions take attributes
    return run
