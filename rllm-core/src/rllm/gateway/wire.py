"""What the gateway's parts say to one another: requests and replies that belong to no wire protocol.

An adapter turns bytes of one protocol into a `Request` and a `Reply` back into bytes; an upstream turns a `Request`
into a `Reply`. Neither knows the other, so that every protocol works with every upstream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from rllm import arrays
from rllm.errors import RllmError
from rllm.types import FinishReason, JsonDict, Message, Usage

if TYPE_CHECKING:
    from rllm.gateway.graph import Node
    from rllm.gateway.sampling import ClientSampling
    from rllm.gateway.session import Session

__all__ = ["Adapter", "Choice", "Delta", "Emit", "EventWriter", "Reply", "Request", "Upstream"]


@dataclass(slots=True)
class Request:
    """One model call as an agent asked for it, in OpenAI's message shape."""

    messages: list[Message]
    sampling: ClientSampling
    reply_id: str
    """Id of the reply to come, as the protocol spells ids."""
    created: int = field(default_factory=lambda: int(time.time()))
    """Unix seconds."""
    tools: list[JsonDict] | None = None
    parse_tools: bool = True
    """False when the client forbade tool calls (`tool_choice: none`); the reply's text is then left as it is."""
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    """The stream ends with a chunk that holds the usage."""
    logprobs: bool = False
    return_token_ids: bool = False
    unsupported: tuple[str, ...] = ()
    """Constraints of the request that only the model server itself could honour."""
    role: str = "default"
    is_retry: bool = False
    """The client says that it asked for this before."""
    raw: JsonDict = field(default_factory=dict)
    """The body as it came, for message upstreams of the same protocol."""


@dataclass(slots=True)
class Choice:
    """One branch of a reply."""

    message: Message
    finish_reason: FinishReason
    ids: NDArray[np.int32] = field(default_factory=arrays.ids)
    logprobs: NDArray[np.float32] = field(default_factory=arrays.floats)
    tokens: Callable[[], list[str]] = list
    """Text of each id, made when the client asked for log-probabilities."""


@dataclass(slots=True)
class Reply:
    """A complete answer."""

    id: str
    model: str
    created: int
    choices: list[Choice]
    usage: Usage
    prompt_ids: NDArray[np.int32] = field(default_factory=arrays.ids)
    """Only where the client asked for token ids."""
    nodes: tuple[Node, ...] = ()
    """The choices' places in the message graph."""
    key: bytes = b""
    """Which request of the session it answers."""
    raw: JsonDict | None = None
    """The provider's own body, passed through where the client speaks the same protocol."""


@dataclass(slots=True)
class Delta:
    """A piece of one branch while it is being made."""

    index: int = 0
    content: str = ""
    reasoning: str = ""
    tool_calls: list[JsonDict] | None = None
    """Deltas in OpenAI's shape, each with its `index`."""
    ids: NDArray[np.int32] | None = None
    raw: JsonDict | None = None
    """The provider's own chunk."""


Emit = Callable[[Delta], None]
"""Called in the event loop with each piece of a streamed reply; must not block."""


class Upstream(Protocol):
    """Where replies come from."""

    @property
    def model(self) -> str:
        """Name that clients see."""
        ...

    async def open(self) -> None:
        """Take what is needed; called once, by the gateway that uses it."""
        ...

    async def answer(self, session: Session, request: Request, emit: Emit | None) -> Reply:
        """Answer one request and record its calls on the session.

        `emit` gets the pieces of a streamed reply; what it got, in order, is the complete reply. Cancelling frees
        everything upstream. Raises `RequestError`, `UpstreamError` or `BackendError`, and records nothing then.
        """
        ...

    async def close(self) -> None:
        """Idempotent."""
        ...


class EventWriter(Protocol):
    """Writes one streamed reply in one protocol; every method returns bytes to send, possibly none."""

    def start(self, reply_id: str, model: str, created: int) -> bytes: ...

    def delta(self, delta: Delta) -> bytes: ...

    def finish(self, reply: Reply) -> bytes:
        """What `delta` has not said yet, and the end of the stream."""
        ...

    def error(self, error: RllmError) -> bytes:
        """The stream broke after it had begun."""
        ...


class Adapter(Protocol):
    """One wire protocol. Stateless: the state of a stream lives in its `EventWriter`."""

    def parse(self, body: JsonDict, headers: Mapping[str, str], tail: str) -> Request:
        """The request, from its JSON body; `tail` is the path after the session. Raises `RequestError`."""
        ...

    def body(self, request: Request, reply: Reply) -> bytes: ...

    def events(self, request: Request) -> EventWriter: ...

    def error(self, error: RllmError) -> tuple[int, bytes]:
        """Status and body."""
        ...
