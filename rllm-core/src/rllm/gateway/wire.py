"""What the gateway's parts say to one another: requests and replies that belong to no wire protocol.

An adapter turns bytes of one protocol into a `Request` and a `Reply` back into bytes; an upstream turns a `Request`
into a `Reply`. Neither knows the other, so that every protocol works with every upstream.

Between them a message has OpenAI's chat shape, with these keys:

* `role`: `system`, `developer`, `user`, `assistant` or `tool`.
* `content`: text, or a list of blocks `{"type": "text", "text": …}` and `{"type": "image_url", "image_url":
  {"url": …}}` (a `data:` URL for inline bytes); absent or None where there is none.
* assistant: `tool_calls`, each `{"id", "type": "function", "function": {"name", "arguments": JSON text}}`;
  `reasoning_content`, the reasoning as plain text; `thinking_blocks`, the same as the provider signed it, each
  `{"type": "thinking", "thinking": …, "signature": …}` or `{"type": "redacted_thinking", "data": …}`, which only a
  provider of that protocol can use.
* tool: `tool_call_id`; `is_error` where the agent says that the tool failed.

A tool is `{"type": "function", "function": {"name", "description", "parameters": JSON schema}}`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from rllm import arrays
from rllm.errors import RllmError
from rllm.types import FinishReason, JsonDict, Message, Usage, WireProtocol

if TYPE_CHECKING:
    from rllm.gateway.graph import Node
    from rllm.gateway.sampling import ClientSampling
    from rllm.gateway.session import Session

__all__ = ["Adapter", "Choice", "Delta", "Emit", "EventWriter", "Incoming", "Reply", "Request", "Upstream"]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request's parts as they came."""

    body: JsonDict
    headers: Mapping[str, str]
    """Any case."""
    model: str = ""
    """From the path, where the protocol names the model there."""
    action: str = ""
    """From the path, where the protocol names what is to be done there: `streamGenerateContent`."""
    query: str = ""
    """Without its question mark."""


@dataclass(slots=True)
class Request:
    """One model call as an agent asked for it, in the shapes that the module's text lists."""

    messages: list[Message]
    sampling: ClientSampling
    reply_id: str
    """Id of the reply to come, as the protocol spells ids."""
    protocol: WireProtocol = WireProtocol.CHAT
    """What the agent speaks."""
    created: int = field(default_factory=lambda: int(time.time()))
    """Unix seconds."""
    tools: list[JsonDict] | None = None
    parse_tools: bool = True
    """False when the client forbade tool calls (`tool_choice: none`); the reply's text is then left as it is."""
    tool_choice: str | JsonDict | None = None
    """As chat/completions spells it: `auto`, `none`, `required` or `{"type": "function", "function": {"name": …}}`."""
    parallel_tool_calls: bool | None = None
    response_format: JsonDict | None = None
    """As chat/completions spells it."""
    reasoning_effort: str | None = None
    """`none`, `minimal`, `low`, `medium`, `high` …; None where the client said nothing."""
    prompt: str | tuple[int, ...] | None = None
    """Text or ids to continue as they are, instead of messages (`completions`)."""
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
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of the request, for the few that belong to the protocol (`anthropic-beta`). Never a key."""


@dataclass(slots=True)
class Choice:
    """One branch of a reply."""

    message: Message
    finish_reason: FinishReason
    ids: NDArray[np.int32] = field(default_factory=arrays.ids)
    logprobs: NDArray[np.float32] = field(default_factory=arrays.floats)
    tokens: Callable[[], list[str]] = list
    """Text of each id, made when the client asked for log-probabilities."""
    stop: str | None = None
    """The stop string that ended it, if one did and it is known."""


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
    """The provider's own body with our id; set only where the client speaks the provider's protocol, and then sent as
    it is."""


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
    """The provider's own chunk or event; set only where the client speaks the provider's protocol, and then sent as it
    is, whatever the other fields say."""


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

    async def count(self, session: Session, request: Request) -> int:
        """Tokens of the prompt that `request` would be answered from. Samples and records nothing.

        Raises `RequestError` where this upstream cannot tell.
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

    @property
    def protocol(self) -> WireProtocol: ...

    def parse(self, incoming: Incoming) -> Request:
        """The request. Raises `RequestError` for one that is malformed; fields that it does not know are ignored."""
        ...

    def body(self, request: Request, reply: Reply) -> bytes: ...

    def events(self, request: Request) -> EventWriter: ...

    def error(self, error: RllmError) -> tuple[int, bytes]:
        """Status and body, as this protocol's clients understand them."""
        ...

    def count(self, tokens: int) -> bytes:
        """The answer to a request for the number of a prompt's tokens; empty where the protocol has none."""
        ...

    def models(self, names: Sequence[str], created: int) -> bytes:
        """The list of models; `created` in Unix seconds."""
        ...
