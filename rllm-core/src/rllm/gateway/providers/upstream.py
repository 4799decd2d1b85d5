"""Replies from a provider that speaks OpenAI's chat/completions.

The request passes through with the session's sampling parameters in place of the client's. Where the server returns
token ids and log-probabilities they are captured; otherwise calls are recorded without tokens, as inexact.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from aiohttp import ClientResponse

from rllm import arrays
from rllm.errors import RequestError, UpstreamError
from rllm.gateway.graph import Node, Prompt
from rllm.gateway.json_text import loads
from rllm.gateway.providers.chat_reader import Branch, Completion, from_body
from rllm.gateway.providers.http import Provider
from rllm.gateway.sampling import ALIASES, resolve
from rllm.gateway.session import Session
from rllm.gateway.sse import DONE, events
from rllm.gateway.wire import Choice, Delta, Emit, Reply, Request
from rllm.types import CapturedCall, Exactness, JsonDict

__all__ = ["MessageUpstream"]


@dataclass(slots=True, eq=False)
class MessageUpstream:
    """An OpenAI-compatible provider. `base_url` may leave out `/v1`; `model` is sent as given."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = 600.0
    """Longest silence of the provider, before and within a reply."""
    return_token_ids: bool = False
    """Ask for token ids and log-probabilities, as vLLM understands it."""
    _provider: Provider = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._provider = Provider(self.base_url, self.api_key, self.timeout_s)

    async def open(self) -> None:
        await self._provider.open()

    async def close(self) -> None:
        await self._provider.close()

    async def answer(self, session: Session, request: Request, emit: Emit | None) -> Reply:
        started, clock = time.time(), time.perf_counter()
        prompt = session.graph.find(request.messages, request.tools, request.role)
        sampling = resolve(request.sampling, session.sampling, session.spec.default_max_tokens)
        if (left := session.tokens_left()) is not None:
            sampling["max_tokens"] = min(left, sampling.get("max_tokens", left))
        key = session.request_key(request, prompt.history.key(), sampling)
        earlier = session.attempts.earlier(key, is_retry=request.is_retry)
        if earlier is not None:
            session.readmit()
            return earlier
        number = session.attempts.begin(key)
        raw: JsonDict | None = None
        try:
            async with self._provider.post(self._body(request, sampling)) as response:
                if emit is None:
                    raw = await _json(response)
                    completion = from_body(raw)
                else:
                    completion = await _relay(response, request, emit)
        except BaseException:
            session.attempts.fail(key, number)
            raise
        reply = Reply(request.reply_id, self.model, request.created, [], completion.usage, key=key)
        if raw is not None:
            reply.raw = {**_visible(raw, request), "id": reply.id}
        if request.return_token_ids:
            reply.prompt_ids = arrays.ids(completion.prompt_ids)
        nodes: list[Node] = []
        for _, branch in sorted(completion.branches.items()):
            call = self._capture(reply, request, prompt, sampling, completion, branch)
            call.started_at = started
            call.duration_s = time.perf_counter() - clock
            parent = prompt.parent if call.parent_id is not None else None
            nodes.append(session.graph.add(prompt, call, parent))
            session.record(call)
            texts: Callable[[], list[str]] = partial(list, branch.texts)
            reply.choices.append(Choice(call.reply, call.finish_reason, call.response_ids, call.logprobs, texts))
        reply.nodes = tuple(nodes)
        return reply

    async def count(self, session: Session, request: Request) -> int:
        raise RequestError(f"the provider of {self.model!r} does not count tokens", status=404, code="not_found_error")

    def _body(self, request: Request, sampling: JsonDict) -> JsonDict:
        """The client's body with the canonical parameters under one spelling each."""
        spellings = {
            name: next((alias for alias in aliases if request.raw.get(alias) is not None), None)
            for name, aliases in ALIASES.items()
        }
        every = {alias for aliases in ALIASES.values() for alias in aliases}
        body = {name: value for name, value in request.raw.items() if name not in every}
        body["model"] = self.model
        for name, value in sampling.items():
            if name == "top_k" and not value and spellings[name] is None:
                continue  # no limit, in a parameter that not every provider knows
            body[spellings[name] or name] = list(value) if isinstance(value, tuple) else value
        if request.stream:
            options = body.get("stream_options")
            body["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
        if self.return_token_ids:
            body["logprobs"] = True
            body["return_token_ids"] = True
        return body

    def _capture(
        self,
        reply: Reply,
        request: Request,
        prompt: Prompt,
        sampling: JsonDict,
        completion: Completion,
        branch: Branch,
    ) -> CapturedCall:
        call = CapturedCall(
            response_id=reply.id,
            role=request.role,
            new_messages=request.messages,
            tools=request.tools,
            reply=branch.message(),
            finish_reason=branch.finish_reason,
            exactness=Exactness.INEXACT,
            usage=completion.usage.model_copy(),
            model=self.model,
            sampling={name: list(value) if isinstance(value, tuple) else value for name, value in sampling.items()},
        )
        if not self._capture_tokens(call, prompt, completion, branch) and prompt.parent is not None:
            call.parent_id = prompt.parent.call.id
            call.new_messages = prompt.new_messages
        return call

    @staticmethod
    def _capture_tokens(call: CapturedCall, prompt: Prompt, completion: Completion, branch: Branch) -> bool:
        """Take the ids that the server sent, if they are all there."""
        alone = len(completion.branches) == 1
        counted = completion.usage.completion_tokens
        if not completion.prompt_ids or not branch.ids or (alone and counted and counted != len(branch.ids)):
            return False
        ids = arrays.ids(completion.prompt_ids)
        parent = prompt.parent
        call.exactness = Exactness.EXACT
        call.added_ids = ids
        if parent is not None:
            before = parent.tokens()
            known = parent.call.exactness is not Exactness.INEXACT
            if known and ids.size > before.size and np.array_equal(ids[: before.size], before):
                call.parent_id = parent.call.id
                call.new_messages = prompt.new_messages
                call.added_ids = ids[before.size :].copy()
            else:
                call.exactness = Exactness.FORKED
        call.response_ids = arrays.ids(branch.ids)
        if len(branch.logprobs) == len(branch.ids):
            call.logprobs = arrays.floats(branch.logprobs)
        if completion.version is not None:
            call.weight_versions = np.full(len(branch.ids), completion.version, np.int32)
        call.usage.prompt_tokens, call.usage.completion_tokens = ids.size, len(branch.ids)
        return True


async def _json(response: ClientResponse) -> JsonDict:
    body = await response.read()
    try:
        value = loads(body)
    except ValueError:
        raise UpstreamError(f"the model provider sent {body[:200]!r}, expected JSON") from None
    if not isinstance(value, dict):
        raise UpstreamError(f"the model provider sent a JSON {type(value).__name__}, expected an object")
    return value


async def _relay(response: ClientResponse, request: Request, emit: Emit) -> Completion:
    """Pass a stream on, chunk by chunk, and put it together."""
    completion = Completion()
    try:
        async for data in events(response.content.iter_any()):
            if data == DONE:
                break
            chunk = loads(data)
            completion.feed(chunk)
            _emit_chunk(_visible(chunk, request), request, emit)
    except ValueError as error:
        raise UpstreamError(f"the model provider sent a broken stream: {error}") from None
    if not completion.complete():
        raise UpstreamError("the model provider's stream ended before the reply was complete")
    return completion


def _emit_chunk(chunk: JsonDict, request: Request, emit: Emit) -> None:
    """One piece for each choice of a chunk; the chunk that holds only the usage goes to those who asked for it."""
    choices = chunk.get("choices") or []
    for choice in choices:
        delta = choice.get("delta") or {}
        emit(
            Delta(
                index=choice.get("index", 0),
                content=delta.get("content") or "",
                reasoning=delta.get("reasoning_content") or delta.get("reasoning") or "",
                tool_calls=delta.get("tool_calls"),
                raw={**chunk, "choices": [choice]},
            )
        )
    if not choices and request.include_usage:
        emit(Delta(raw=chunk))


def _visible(body: JsonDict, request: Request) -> JsonDict:
    """A provider's body or chunk without the token data that the client did not ask for."""
    if request.return_token_ids and request.logprobs:
        return body
    hidden = set() if request.return_token_ids else {"prompt_token_ids", "token_ids", "prompt_logprobs"}
    if not request.logprobs:
        hidden.add("logprobs")
    body = {name: value for name, value in body.items() if name not in hidden}
    if isinstance(choices := body.get("choices"), list):
        body["choices"] = [{name: value for name, value in choice.items() if name not in hidden} for choice in choices]
    return body
