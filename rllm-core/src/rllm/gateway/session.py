"""A session: one agent's access to the model, everything that it asked, and what it may still ask.

Usable from the event loop that the gateway runs in. Its calls are in the order in which they were completed.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from rllm.errors import BackendError, ContextOverflow, RequestError, RllmError, UpstreamError, one_line
from rllm.gateway.attempts import Attempts
from rllm.gateway.config import SessionSpec
from rllm.gateway.graph import MessageGraph
from rllm.gateway.recorder import Recorder
from rllm.gateway.sampling import check_enforced
from rllm.ids import new_id
from rllm.types import AgentConfig, CallError, CapturedCall, Exactness, JsonDict, Termination

if TYPE_CHECKING:
    from rllm.gateway.wire import Request

__all__ = ["Session", "Trace"]

_CLOSE_TIMEOUT_S = 5.0
"""For calls in flight to notice that they are cancelled."""


@dataclass(slots=True)
class Trace:
    """What a session left behind."""

    session_id: str
    calls: list[CapturedCall]
    errors: list[CallError]
    ledger: Mapping[Exactness, int]
    """Number of calls of each exactness, all four present."""
    termination: Termination | None = None
    """What the gateway refused to go on for, if it did: budget, deadline or context length."""


@dataclass(slots=True, eq=False)
class Session:
    """Opened by `Gateway.open_session`, which is told when it closes."""

    spec: SessionSpec
    model: str
    recorder: Recorder | None = field(default=None, repr=False)
    on_close: Callable[[Session], None] | None = field(default=None, repr=False)
    id: str = ""
    url: str = field(default="", repr=False)
    """Ends in the session's segment; set by the gateway."""
    calls: list[CapturedCall] = field(default_factory=list, repr=False)
    errors: list[CallError] = field(default_factory=list, repr=False)
    termination: Termination | None = None
    closed: bool = False
    graph: MessageGraph = field(default_factory=MessageGraph, repr=False)
    attempts: Attempts = field(default_factory=Attempts, repr=False)
    sampling: JsonDict = field(default_factory=dict, repr=False)
    """Enforced parameters, checked."""
    tasks: set[asyncio.Task[object]] = field(default_factory=set, repr=False)
    """Calls in flight."""
    key: bytes = field(default=b"", repr=False)
    """Digest of the bearer token."""
    _token: str = field(default="", repr=False)
    _opened: float = field(default_factory=time.monotonic, repr=False)
    _asked: int = field(default=0, repr=False)
    _spent: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self.id = new_id("s") if self.spec.id is None else self.spec.id
        self.sampling = check_enforced(self.spec.sampling)
        self._token = f"rllm-{token_urlsafe(24)}"
        self.key = digest(self._token.encode())

    def agent_config(self, metadata: JsonDict | None = None) -> AgentConfig:
        """How an agent reaches the model through this session."""
        return AgentConfig(
            base_url=f"{self.url}/v1",
            model=self.model,
            api_key=self._token,
            session_id=self.id,
            is_validation=self.spec.is_validation,
            sampling=dict(self.sampling),
            metadata=dict(metadata or {}),
        )

    def admit(self) -> None:
        """Count one request. Raises `RequestError` when the session's budget is used up."""
        spec = self.spec
        if (left := self.seconds_left()) is not None and left <= 0:
            raise self.overdue()
        if spec.max_calls is not None and self._asked >= spec.max_calls:
            raise self._refusal(f"this session may make {spec.max_calls} calls and has made them", Termination.BUDGET)
        if spec.max_tokens is not None and self._spent >= spec.max_tokens:
            raise self._refusal(
                f"this session may sample {spec.max_tokens} tokens and has sampled {self._spent}", Termination.BUDGET
            )
        self._asked += 1

    def readmit(self) -> None:
        """A request that was admitted got no reply, so it does not count."""
        self._asked -= 1

    def tokens_left(self) -> int | None:
        """Completion tokens that the budget still allows; None without one."""
        return None if self.spec.max_tokens is None else max(1, self.spec.max_tokens - self._spent)

    def seconds_left(self) -> float | None:
        """Until the deadline; None without one."""
        if self.spec.deadline_s is None:
            return None
        return self._opened + self.spec.deadline_s - time.monotonic()

    def overdue(self) -> RequestError:
        """The error of a passed deadline, which is the end of the session."""
        return self._refusal(f"this session's deadline of {self.spec.deadline_s:g} s has passed", Termination.DEADLINE)

    def _refusal(self, message: str, termination: Termination) -> RequestError:
        self.termination = termination
        return RequestError(message, status=403, code=f"session_{termination.value}_exceeded")

    def record(self, call: CapturedCall) -> None:
        """One complete call."""
        self._spent += call.usage.completion_tokens
        self.calls.append(call)
        if self.termination is Termination.CONTEXT_LENGTH:
            self.termination = None
        if self.recorder is not None:
            self.recorder.record(self.id, call)

    def record_failure(self, role: str, error: RllmError, status: int) -> None:
        """One request that got no reply."""
        if isinstance(error, ContextOverflow):
            self.termination = Termination.CONTEXT_LENGTH
        self.record_error(
            CallError(
                role=role,
                status=status,
                code=error.code if isinstance(error, RequestError) else type(error).__name__,
                message=one_line(error),
                at=time.time(),
                is_upstream=_is_upstreams_fault(error),
            )
        )

    def record_error(self, error: CallError) -> None:
        """One request that got no reply, as data."""
        self.errors.append(error)
        if self.recorder is not None:
            self.recorder.record_error(self.id, error)

    async def settled(self) -> None:
        """Returns once the recorder has everything in a safe place. Raises `StoreError`."""
        if self.recorder is not None:
            await self.recorder.settled()

    def request_key(self, request: Request, conversation: bytes, sampling: JsonDict) -> bytes:
        """Identifies identical requests of this session."""
        rest = f"{request.role}\0{request.n}\0{request.parse_tools}\0{sorted(sampling.items())}"
        return digest(conversation + rest.encode("utf-8", "surrogatepass"))

    def trace(self) -> Trace:
        """What happened so far."""
        counts = Counter(call.exactness for call in self.calls)
        return Trace(
            session_id=self.id,
            calls=self.calls,
            errors=self.errors,
            ledger={exactness: counts[exactness] for exactness in Exactness},
            termination=self.termination,
        )

    async def close(self) -> Trace:
        """Cancel the calls in flight, refuse all later ones and hand over what was captured. Idempotent."""
        if not self.closed:
            self.closed = True
            if self.on_close is not None:
                self.on_close(self)
            current = asyncio.current_task()
            tasks = [task for task in self.tasks if task is not current]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT_S)
            self.graph = MessageGraph()
            self.attempts = Attempts()
        return self.trace()


def _is_upstreams_fault(error: RllmError) -> bool:
    """A provider that refuses a malformed request is not to blame; one that lets nobody in is."""
    if isinstance(error, UpstreamError):
        return error.status >= 500 or error.status in (401, 402, 403, 407, 408, 429)
    return isinstance(error, BackendError)


def digest(data: bytes) -> bytes:
    """Sixteen bytes that stand for `data`."""
    return blake2b(data, digest_size=16).digest()
