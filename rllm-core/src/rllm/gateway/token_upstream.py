"""Replies sampled token by token: the gateway renders, samples, captures and parses.

Nothing that was sampled is ever rendered again within its conversation, and every reply is recorded with the ids,
log-probabilities and weight versions that the sampler gave.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rllm.errors import BackendError, ModelError, RequestError, UpstreamError, boundary
from rllm.gateway.graph import Node, Prompt
from rllm.gateway.rendering.renderer import Renderer, ReplyStream
from rllm.gateway.sampling import resolve
from rllm.gateway.session import Session, digest
from rllm.gateway.text_prompts import TextReply, plan_text, read_text
from rllm.gateway.wire import Choice, Delta, Emit, Reply, Request
from rllm.ids import derive_seed, new_id
from rllm.interfaces.sampler import DeltaListener, Sample, Sampler, SamplingParams
from rllm.types import CapturedCall, FinishReason, JsonDict, Message, Usage

__all__ = ["TokenUpstream"]

_CACHED_IDS = 4_000_000
"""Ids of first prompts that are kept, so that a group's rollouts render and store their task once."""
_MAX_RESUMES = 16
"""Interruptions of one reply by weight updates that are bridged by sampling on."""


@dataclass(slots=True, eq=False)
class TokenUpstream:
    """Samples from `sampler` what `renderer` makes of the messages."""

    sampler: Sampler
    renderer: Renderer
    model: str
    _prompts: OrderedDict[bytes, NDArray[np.int32]] = field(default_factory=OrderedDict, repr=False)
    _cached: int = field(default=0, repr=False)

    async def open(self) -> None:
        """The sampler is opened and closed by its backend."""

    async def close(self) -> None:
        self._prompts.clear()
        self._cached = 0

    async def answer(self, session: Session, request: Request, emit: Emit | None) -> Reply:
        if request.unsupported:
            raise RequestError(
                f"{', '.join(request.unsupported)} cannot be enforced on a model that is sampled token by token",
                code="unsupported_parameter",
            )
        started, clock = time.time(), time.perf_counter()
        prompt = self._plan(session, request)
        assert prompt.ids is not None
        sampling = resolve(request.sampling, session.sampling, session.spec.default_max_tokens)
        key = session.request_key(request, prompt.history.key(), sampling)
        earlier = session.attempts.earlier(key, is_retry=request.is_retry)
        if earlier is not None:
            session.readmit()
            return earlier
        number = session.attempts.begin(key)
        try:
            drawn = await self._sample(session, request, prompt, sampling, number, emit)
            read = [(params, sample, self._read(prompt, params, sample, request)) for params, sample in drawn]
        except BaseException:
            session.attempts.fail(key, number)
            raise
        reply = Reply(
            id=request.reply_id,
            model=self.model,
            created=request.created,
            choices=[],
            usage=Usage.model_construct(prompt_tokens=int(prompt.ids.size), completion_tokens=0),
        )
        if request.return_token_ids:
            reply.prompt_ids = prompt.ids
        nodes: list[Node] = []
        for params, sample, message in read:
            call = self._capture(reply, request, prompt, params, sample, message)
            call.started_at = started
            call.duration_s = time.perf_counter() - clock
            nodes.append(session.graph.add(prompt, call, prompt.parent))
            session.record(call)
            reply.usage.completion_tokens += sample.ids.size
            texts = _Texts(self.renderer, sample.ids)
            stop = self._stop_of(params, sample)
            reply.choices.append(Choice(message, call.finish_reason, sample.ids, sample.logprobs, texts, stop))
        reply.nodes = tuple(nodes)
        reply.key = key
        return reply

    async def count(self, session: Session, request: Request) -> int:
        prompt = self._plan(session, request)
        assert prompt.ids is not None
        return int(prompt.ids.size)

    def _plan(self, session: Session, request: Request) -> Prompt:
        with boundary(ModelError, "renderer"):
            if request.prompt is not None:
                return plan_text(session, request.prompt, self.renderer)
            return session.graph.plan(request.messages, request.tools, request.role, self.renderer, self._render)

    def _render(self, messages: Sequence[Message], tools: list[JsonDict] | None, key: bytes) -> NDArray[np.int32]:
        """A whole conversation; one without replies is rendered once and its ids are shared by all that begin so."""
        if any(message["role"] in ("assistant", "tool") for message in messages):
            return self.renderer.render(messages, tools)
        found = self._prompts.get(key)
        if found is None:
            found = self.renderer.render(messages, tools)
            found.setflags(write=False)
            self._prompts[key] = found
            self._cached += found.size
            while self._cached > _CACHED_IDS and len(self._prompts) > 1:
                self._cached -= self._prompts.popitem(last=False)[1].size
        else:
            self._prompts.move_to_end(key)
        return found

    async def _sample(
        self,
        session: Session,
        request: Request,
        prompt: Prompt,
        sampling: JsonDict,
        number: int,
        emit: Emit | None,
    ) -> list[tuple[SamplingParams, Sample]]:
        assert prompt.ids is not None
        limits = self._limits(session, prompt.ids, sampling)
        draws: list[tuple[SamplingParams, asyncio.Future[Sample]]] = []
        for index in range(request.n):
            seed = self._seed(session, request, prompt.ids, sampling, number, index)
            params = limits if seed is None else replace(limits, seed=seed)
            listener = self._listener(request, prompt.ids, params, index, emit)
            if request.n == 1:
                return [(params, await self._draw(prompt.ids, params, listener))]
            draws.append((params, asyncio.ensure_future(self._draw(prompt.ids, params, listener))))
        try:
            await asyncio.gather(*(task for _, task in draws))
            return [(params, task.result()) for params, task in draws]
        finally:
            for _, task in draws:
                task.cancel()

    def _limits(self, session: Session, prompt_ids: NDArray[np.int32], sampling: JsonDict) -> SamplingParams:
        room = max(1, self.sampler.context_length - prompt_ids.size)
        limit = sampling.get("max_tokens") or room
        if (left := session.tokens_left()) is not None:
            limit = min(limit, left)
        return SamplingParams(
            max_tokens=limit,
            temperature=sampling.get("temperature", 1.0),
            top_p=sampling.get("top_p", 1.0),
            top_k=sampling.get("top_k", 0),
            stop=sampling.get("stop", ()),
            stop_ids=self.renderer.stop_ids,
        )

    @staticmethod
    def _seed(
        session: Session,
        request: Request,
        prompt_ids: NDArray[np.int32],
        sampling: JsonDict,
        number: int,
        index: int,
    ) -> int | None:
        """Depends on what is asked and how often it was asked before, never on when or beside what."""
        if "seed" in sampling:
            seed = int(sampling["seed"])
            return derive_seed(seed, index) if index else seed
        if session.spec.seed is None:
            return None
        prompt = digest(prompt_ids.tobytes()).hex()
        return derive_seed(session.spec.seed, request.role, prompt, number, index)

    def _listener(
        self, request: Request, prompt_ids: NDArray[np.int32], params: SamplingParams, index: int, emit: Emit | None
    ) -> DeltaListener | None:
        if emit is None:
            return None
        tools = request.tools if request.parse_tools else None
        if request.prompt is not None:
            stream: ReplyStream = TextReply(self.renderer, params.stop)
        else:
            stream = self.renderer.stream(prompt_ids=prompt_ids, tools=tools, stop=params.stop)

        def listen(ids: NDArray[np.int32]) -> None:
            reasoning, content = stream.feed(ids)
            if content or reasoning or request.return_token_ids:
                emit(Delta(index, content, reasoning, ids=ids))

        return listen

    async def _draw(
        self, prompt_ids: NDArray[np.int32], params: SamplingParams, listener: DeltaListener | None
    ) -> Sample:
        """One complete sample. A reply that a weight update interrupts is sampled on from where it stopped."""
        parts: list[Sample] = []
        left = params.max_tokens
        prompt = prompt_ids
        for _ in range(_MAX_RESUMES):
            with boundary(BackendError, "sampler"):
                part = await self.sampler.sample(
                    prompt, params if not parts else replace(params, max_tokens=left), on_delta=listener
                )
            if not part.ids.size == part.logprobs.size == part.versions.size:
                raise BackendError(
                    f"sampler returned {part.ids.size} ids, {part.logprobs.size} log-probabilities and "
                    f"{part.versions.size} versions; expected one of each per token"
                )
            parts.append(part)
            left -= part.ids.size
            if part.finish_reason is not FinishReason.ABORT:
                return _joined(parts, part.finish_reason)
            if left <= 0:
                return _joined(parts, FinishReason.LENGTH)
            prompt = np.concatenate([prompt, part.ids])
        raise UpstreamError(
            f"the reply was interrupted {_MAX_RESUMES} times and is incomplete", status=503, retry_after="1"
        )

    def _read(self, prompt: Prompt, params: SamplingParams, sample: Sample, request: Request) -> Message:
        assert prompt.ids is not None
        tools = request.tools if request.parse_tools else None
        with boundary(ModelError, "renderer"):
            if request.prompt is not None:
                return read_text(sample.ids, self.renderer, params.stop)
            return self.renderer.parse(sample.ids, prompt_ids=prompt.ids, tools=tools, stop=params.stop)

    def _stop_of(self, params: SamplingParams, sample: Sample) -> str | None:
        """The stop string that ended the reply: the first in its text."""
        if not params.stop or sample.finish_reason is not FinishReason.STOP:
            return None
        text = self.renderer.decode(sample.ids)
        found = [(at, stop) for stop in params.stop if (at := text.find(stop)) >= 0]
        return min(found)[1] if found else None

    def _capture(
        self, reply: Reply, request: Request, prompt: Prompt, params: SamplingParams, sample: Sample, message: Message
    ) -> CapturedCall:
        assert prompt.ids is not None
        assert prompt.added_ids is not None
        reason = sample.finish_reason
        if reason is FinishReason.STOP and message.get("tool_calls"):
            reason = FinishReason.TOOL_CALLS
        usage = Usage.model_construct(prompt_tokens=int(prompt.ids.size), completion_tokens=int(sample.ids.size))
        return CapturedCall.model_construct(
            id=new_id("call"),
            response_id=reply.id,
            role=request.role,
            parent_id=None if prompt.parent is None else prompt.parent.call.id,
            new_messages=prompt.new_messages,
            tools=request.tools,
            reply=message,
            finish_reason=reason,
            exactness=prompt.exactness,
            usage=usage,
            model=self.model,
            sampling=_as_json(params),
            added_ids=prompt.added_ids,
            response_ids=sample.ids,
            logprobs=sample.logprobs,
            weight_versions=sample.versions,
        )


def _joined(parts: list[Sample], reason: FinishReason) -> Sample:
    if len(parts) == 1 and reason is parts[0].finish_reason:
        return parts[0]
    return Sample(
        ids=np.concatenate([part.ids for part in parts]),
        logprobs=np.concatenate([part.logprobs for part in parts]),
        versions=np.concatenate([part.versions for part in parts]),
        finish_reason=reason,
    )


def _as_json(params: SamplingParams) -> JsonDict:
    found: JsonDict = {
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
    }
    if params.stop:
        found["stop"] = list(params.stop)
    if params.seed is not None:
        found["seed"] = params.seed
    return found


class _Texts:
    """Text of each token, made only when a client asked for log-probabilities."""

    __slots__ = ("_ids", "_renderer")

    def __init__(self, renderer: Renderer, ids: NDArray[np.int32]) -> None:
        self._renderer = renderer
        self._ids = ids

    def __call__(self) -> list[str]:
        return [self._renderer.decode([id]) for id in self._ids.tolist()]
