"""What the backend and its worker process say to each other, and how it is framed on their socket.

A frame is a length (8 bytes, little-endian) and a pickle. Both ends are this package, started by one another over a
private socket pair; nothing from elsewhere is ever unpickled.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "HEADER",
    "Call",
    "Cancel",
    "Delta",
    "Failed",
    "Finished",
    "Outcome",
    "Request",
    "frame",
    "unframe",
]

HEADER = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Request:
    """Sample one reply."""

    number: int
    prompt: NDArray[np.int32]
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    stop: tuple[str, ...]
    stop_ids: tuple[int, ...]
    seed: int
    """Unsigned, 64 bits."""
    stream: bool
    """Whether each token is told as it is sampled."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Forget the request of that number."""

    number: int


@dataclass(frozen=True, slots=True)
class Call:
    """Run the worker's command `name`; answered by an `Outcome` of the same number."""

    number: int
    name: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """A reply of T tokens; arrays have shape [T]."""

    number: int
    ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    versions: NDArray[np.int32]
    stopped: bool
    """By a stop id or string; otherwise by a limit."""


@dataclass(frozen=True, slots=True)
class Delta:
    """One more token of a streamed reply."""

    number: int
    token: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command returned."""

    number: int
    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """A command or request failed with an error of the class `kind` in `rllm.errors`."""

    number: int
    kind: str
    message: str


def frame(messages: list[Any]) -> bytes:
    """Messages as one frame."""
    data = pickle.dumps(messages, protocol=pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(len(data)) + data


def unframe(data: bytes) -> list[Any]:
    """The messages of a frame without its header."""
    messages: list[Any] = pickle.loads(data)
    return messages
