"""The parent's end of the worker process: starts it, talks to it, and notices when it dies."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import IO, Any

from rllm import errors
from rllm.errors import BackendError, ConfigError, RllmError
from rllm_backend_local.messages import (
    HEADER,
    Call,
    Cancel,
    Delta,
    Failed,
    Finished,
    Outcome,
    Request,
    frame,
    unframe,
)

__all__ = ["WorkerProcess"]

_ENVIRONMENT: Mapping[str, str] = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "OMP_WAIT_POLICY": "passive",  # a spinning thread takes the core that the gateway needs
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
_CLOSE_S = 5.0


def _error(failed: Failed) -> RllmError:
    """The error that happened in the worker, here."""
    kind = getattr(errors, failed.kind, None)
    if isinstance(kind, type) and issubclass(kind, RllmError):
        return ConfigError(failed.message) if kind is ConfigError else kind(failed.message)
    return BackendError(failed.message)


class WorkerProcess:
    """One worker. Used from one event loop; everything that is pending fails when the worker ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._lifeline = -1
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._listeners: dict[int, Callable[[list[int]], None]] = {}
        self._outbox: list[Request | Cancel | Call] = []
        self._next = 0
        self._broken: BackendError | None = None

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        if self._process is None:
            raise BackendError("the local backend is not open")
        return self._process.pid

    async def start(self) -> None:
        """Start the process; it imports torch only when it opens a model."""
        mine, theirs = socket.socketpair()
        read_end, self._lifeline = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._process = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-P", "-m", "rllm_backend_local.worker", str(theirs.fileno()), str(read_end)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            pass_fds=(theirs.fileno(), read_end),
            env={**_ENVIRONMENT, **os.environ},
            process_group=0,  # Ctrl-C in the terminal is for the parent
        )
        theirs.close()
        os.close(read_end)
        self._reader, self._writer = await asyncio.open_unix_connection(sock=mine, limit=1 << 24)
        self._listening = asyncio.create_task(self._listen(self._reader))

    async def call(self, name: str, *arguments: Any) -> Any:
        """Run a command of the worker and return its result, or raise its error."""
        number, future = self._expect()
        self._post(Call(number, name, arguments))
        return await future

    async def sample(self, request: Request, on_delta: Callable[[list[int]], None] | None) -> Finished:
        """Sample one reply; `request.number` is replaced. Cancelling frees what the request held."""
        number, future = self._expect()
        if on_delta is not None:
            self._listeners[number] = on_delta
        self._post(
            Request(
                number,
                request.prompt,
                request.max_tokens,
                request.temperature,
                request.top_p,
                request.top_k,
                request.stop,
                request.stop_ids,
                request.seed,
                on_delta is not None,
            )
        )
        try:
            finished: Finished = await future
            return finished
        except asyncio.CancelledError:
            if self._pending.pop(number, None) is not None and self._broken is None:
                self._post(Cancel(number))
            raise
        finally:
            self._listeners.pop(number, None)

    async def close(self) -> None:
        """End the worker; idempotent."""
        if self._broken is None:
            self._fail(BackendError("the local backend was closed"))
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None
        if self._process is not None:
            await asyncio.to_thread(self._reap)
        if self._log is not None:
            self._log.close()
            self._log = None

    def _reap(self) -> None:
        assert self._process is not None, "only called after start"
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _expect(self) -> tuple[int, asyncio.Future[Any]]:
        if self._broken is not None:
            raise self._broken
        if self._writer is None:
            raise BackendError("the local backend is not open")
        self._next += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[self._next] = future
        return self._next, future

    def _post(self, message: Request | Cancel | Call) -> None:
        """Send with everything else that is posted in this turn of the event loop."""
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(message)

    def _flush(self) -> None:
        messages, self._outbox = self._outbox, []
        if self._writer is not None:
            self._writer.write(frame(messages))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (size,) = HEADER.unpack(await reader.readexactly(HEADER.size))
                self._receive(unframe(await reader.readexactly(size)))
        except (asyncio.IncompleteReadError, ConnectionError):
            await asyncio.to_thread(self._reap)
            self._fail(BackendError(self._obituary()))

    def _receive(self, messages: list[Finished | Delta | Outcome | Failed]) -> None:
        for message in messages:
            if isinstance(message, Delta):
                if listener := self._listeners.get(message.number):
                    listener([message.token])
                continue
            future = self._pending.pop(message.number, None)
            if future is None or future.done():
                continue
            if isinstance(message, Failed):
                future.set_exception(_error(message))
            else:
                future.set_result(message.value if isinstance(message, Outcome) else message)

    def _fail(self, error: BackendError) -> None:
        self._broken = error
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(error)
                future.exception()

    def _obituary(self) -> str:
        code = self._process.returncode if self._process is not None else None
        last = ""
        if self._log is not None:
            self._log.seek(0)
            lines = self._log.read()[-4000:].decode(errors="replace").strip().splitlines()
            last = f"; it last said {lines[-1].strip()!r}" if lines else ""
        hint = " (killed, perhaps for memory)" if code == -9 else ""
        return f"the local backend's worker process ended with exit code {code}{hint}{last}; the run can be resumed"
