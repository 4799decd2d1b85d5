"""OpenAI's legacy completions: one prompt, as text or as token ids, that is continued as it is.

Several prompts in one request, `echo`, `suffix` and `best_of` are refused, since a reply that leaves them out would be
taken for one that has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rllm.errors import RequestError, RllmError
from rllm.gateway.json_text import dumps
from rllm.gateway.protocols.chat import ChatAdapter, openai_error
from rllm.gateway.protocols.chat_events import usage_body
from rllm.gateway.protocols.completions_events import CompletionEvents, choice_tail
from rllm.gateway.sampling import ClientSampling
from rllm.gateway.wire import Incoming, Reply, Request
from rllm.ids import new_id
from rllm.types import JsonDict, WireProtocol

__all__ = ["CompletionsAdapter"]

_MAX_CHOICES = 128
_MAX_TOKENS = 16
"""OpenAI's default."""
_LARGEST_ID = 2**31 - 1


class CompletionsAdapter:
    """`POST …/completions`."""

    protocol = WireProtocol.COMPLETIONS

    def parse(self, incoming: Incoming) -> Request:
        body = incoming.body
        for name in ("echo", "suffix"):
            if body.get(name):
                raise RequestError(f"{name} is {body[name]!r}, which is not supported; leave it out")
        n = body.get("n")
        if n is None:
            n = 1
        elif isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MAX_CHOICES:
            raise RequestError(f"n is {n!r}, expected a whole number from 1 to {_MAX_CHOICES}")
        if body.get("best_of") not in (None, n):
            raise RequestError(f"best_of is {body['best_of']!r}, which is not supported; ask for n samples instead")
        sampling = ClientSampling.parse(body)
        if sampling.max_tokens is None:
            sampling.max_tokens = _MAX_TOKENS
        options = body.get("stream_options")
        logprobs = body.get("logprobs")
        return Request(
            messages=[],
            sampling=sampling,
            reply_id=new_id("cmpl"),
            protocol=WireProtocol.COMPLETIONS,
            parse_tools=False,
            prompt=_prompt(body.get("prompt")),
            n=n,
            stream=bool(body.get("stream")),
            include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
            logprobs=logprobs is not None and logprobs is not False,
            return_token_ids=bool(body.get("return_token_ids")),
            unsupported=_unsupported(body),
            is_retry=incoming.headers.get("x-stainless-retry-count", "0") != "0",
            raw=body,
            headers=incoming.headers,
        )

    def body(self, request: Request, reply: Reply) -> bytes:
        if reply.raw is not None:
            return dumps(reply.raw)
        choices = []
        for index, choice in enumerate(reply.choices):
            entry: JsonDict = {"index": index, "text": choice.message.get("content") or ""}
            entry.update(choice_tail(request, choice))
            if request.return_token_ids:
                entry["token_ids"] = choice.ids.tolist()
                entry["prompt_token_ids"] = reply.prompt_ids.tolist()
            choices.append(entry)
        body: JsonDict = {
            "id": reply.id,
            "object": "text_completion",
            "created": reply.created,
            "model": reply.model,
            "choices": choices,
            "usage": usage_body(reply.usage),
        }
        return dumps(body)

    def events(self, request: Request) -> CompletionEvents:
        return CompletionEvents(request)

    def error(self, error: RllmError) -> tuple[int, bytes]:
        return openai_error(error)

    def count(self, tokens: int) -> bytes:
        return b""

    def models(self, names: Sequence[str], created: int) -> bytes:
        return ChatAdapter().models(names, created)


def _prompt(value: Any) -> str | tuple[int, ...]:
    """The one prompt; a list of one prompt counts as it."""
    if isinstance(value, list) and value and all(isinstance(each, str | list) for each in value):
        if len(value) > 1:
            raise RequestError(f"prompt holds {len(value)} prompts, expected one; send a request for each")
        value = value[0]
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value and all(map(_is_id, value)):
        return tuple(value)
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    raise RequestError(f"prompt is {shown}, expected a non-empty text or a non-empty list of token ids")


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_ID


def _unsupported(body: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in ("frequency_penalty", "presence_penalty", "logit_bias") if body.get(name))
