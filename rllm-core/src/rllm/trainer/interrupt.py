"""Ctrl-C and SIGTERM, twice: the first asks the run to stop where nothing is lost, the second ends it at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["Interrupt", "Interrupted"]

T = TypeVar("T")


class Interrupted(Exception):
    """The user asked to stop; raised where stopping loses nothing that was finished. Its text is the run's id."""


class Interrupt:
    """Whether stopping was asked for. Use inside the event loop that does the work."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.insisted = False
        """Whether a second signal has ended the run at once."""

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    def request(self) -> None:
        """Ask to stop, as a first Ctrl-C does."""
        self._event.set()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM inside the block; does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()

        def on_signal() -> None:
            if self.requested and task is not None:
                self.insisted = True
                task.cancel("interrupted twice")
            self.request()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`; a request to stop cancels it and raises Interrupted."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Interrupted
        finally:
            for each in (task, stop):
                each.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)
