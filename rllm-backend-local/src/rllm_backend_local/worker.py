"""The worker process: one thread that samples while there is something to sample and obeys between two passes.

Started by `process` with one end of a socket pair. It ignores Ctrl-C (its parent decides) and ends when the other
end closes, so a killed parent leaves nothing behind, even in the middle of a long step.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from typing import Any

from rllm.errors import BackendError, ModelError, RllmError, boundary, one_line
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

__all__ = ["main"]

_READ_BYTES = 1 << 20


class _Link:
    """The worker's end of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()

    def send(self, messages: list[Any]) -> None:
        if messages:
            self._socket.sendall(frame(messages))

    def receive(self, *, wait: bool) -> list[Any]:
        """Every message that has come; with `wait`, at least one. Raises `EOFError` when the parent is gone."""
        messages = self._frames()
        while True:
            ready, _, _ = select.select([self._socket], [], [], None if wait and not messages else 0)
            if not ready:
                return messages
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise EOFError
            self._buffer += data
            messages += self._frames()

    def _frames(self) -> list[Any]:
        messages: list[Any] = []
        at = 0
        while len(self._buffer) - at >= HEADER.size:
            (size,) = HEADER.unpack_from(self._buffer, at)
            if len(self._buffer) - at - HEADER.size < size:
                break
            start = at + HEADER.size
            messages += unframe(bytes(self._buffer[start : start + size]))
            at = start + size
        del self._buffer[:at]
        return messages


class _Worker:
    """The loop."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._host: Any = None

    def run(self) -> None:
        while True:
            busy = self._host is not None and self._host.sampler.busy
            for message in self._link.receive(wait=not busy):
                self._obey(message)
            if self._host is not None and self._host.sampler.busy:
                self._link.send(self._sample())

    def _obey(self, message: Request | Cancel | Call) -> None:
        match message:
            case Request():
                self._host.sampler.submit(message)
            case Cancel():
                self._host.sampler.cancel(message.number)
            case Call():
                self._link.send([self._answer(message)])

    def _answer(self, call: Call) -> Outcome | Failed:
        try:
            with boundary(BackendError, f"local backend, {call.name}"):
                if call.name == "open":
                    return Outcome(call.number, self._open(*call.arguments))
                if self._host is None:
                    raise ModelError("no model is open")
                return Outcome(call.number, self._host.call(call.name, call.arguments))
        except RllmError as error:
            return Failed(call.number, type(error).__name__, one_line(error))

    def _open(self, options: Any, model: str, seed: int, trainable: bool) -> Any:
        from rllm_backend_local.host import Host

        self._host = Host(options, model=model, seed=seed, trainable=trainable)
        return self._host.info

    def _sample(self) -> list[Finished | Delta | Failed]:
        try:
            with boundary(BackendError, "local backend, sampling"):
                finished, deltas = self._host.sampler.step()
            return [*deltas, *finished]
        except BackendError as error:
            message = one_line(error)
            return [Failed(number, "BackendError", message) for number in self._host.sampler.abort()]


def _end_with(lifeline: int) -> None:
    """Exit at once when the parent's end of the pipe closes."""
    os.read(lifeline, 1)
    os._exit(0)


def main() -> None:
    """Serve the parent whose socket and pipe are the two file descriptors in `sys.argv`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection, lifeline = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    try:
        _Worker(_Link(connection)).run()
    except (EOFError, ConnectionError):
        os._exit(0)


if __name__ == "__main__":
    main()
