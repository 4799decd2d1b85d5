"""The parts of a completions reply that streams and whole bodies share, and the stream itself."""

from __future__ import annotations

from itertools import accumulate

from rllm.errors import RllmError, one_line
from rllm.gateway.json_text import dumps
from rllm.gateway.protocols.chat_events import usage_body
from rllm.gateway.wire import Choice, Delta, Reply, Request
from rllm.types import JsonDict

__all__ = ["CompletionEvents", "choice_tail"]

_LEAST = -9999.0
"""OpenAI's stand-in for minus infinity, which JSON cannot say."""


def choice_tail(request: Request, choice: Choice) -> JsonDict:
    """What a choice holds besides its text.

    `top_logprobs` holds the sampled token alone, the only one whose log-probability is known; `text_offset` counts the
    characters of the tokens before, from the beginning of the reply.
    """
    tail: JsonDict = {"logprobs": None, "finish_reason": choice.finish_reason.value}
    if request.logprobs and choice.logprobs.size:
        tokens = choice.tokens()
        logprobs = [max(each, _LEAST) for each in choice.logprobs.tolist()]
        tail["logprobs"] = {
            "tokens": tokens,
            "token_logprobs": logprobs,
            "top_logprobs": [{token: logprob} for token, logprob in zip(tokens, logprobs, strict=True)],
            "text_offset": list(accumulate(map(len, tokens[:-1]), initial=0)),
        }
    return tail


class CompletionEvents:
    """One stream of `text_completion` events."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._head: JsonDict = {}
        self._said: dict[int, list[int]] = {}
        """Characters and ids that each choice has been given."""
        self._is_raw = False
        """Whether the provider's own chunks were passed on, its finish reason and usage among them."""

    def start(self, reply_id: str, model: str, created: int) -> bytes:
        self._head = {"id": reply_id, "object": "text_completion", "created": created, "model": model}
        return b""

    def delta(self, delta: Delta) -> bytes:
        if delta.raw is not None:
            self._is_raw = True
            return _event({**delta.raw, "id": self._head["id"]})
        said = self._said.setdefault(delta.index, [0, 0])
        said[0] += len(delta.content)
        rest: JsonDict = {"logprobs": None, "finish_reason": None}
        if delta.ids is not None and self._request.return_token_ids:
            said[1] += delta.ids.size
            rest["token_ids"] = delta.ids.tolist()
        elif not delta.content:
            return b""
        return self._chunk(delta.index, delta.content, rest)

    def finish(self, reply: Reply) -> bytes:
        if self._is_raw:
            return b"data: [DONE]\n\n"
        parts = []
        for index, choice in enumerate(reply.choices):
            characters, ids = self._said.get(index, (0, 0))
            rest = choice_tail(self._request, choice)
            if self._request.return_token_ids:
                rest["token_ids"] = choice.ids[ids:].tolist()
                rest["prompt_token_ids"] = reply.prompt_ids.tolist()
            parts.append(self._chunk(index, (choice.message.get("content") or "")[characters:], rest))
        if self._request.include_usage:
            parts.append(_event({**self._head, "choices": [], "usage": usage_body(reply.usage)}))
        parts.append(b"data: [DONE]\n\n")
        return b"".join(parts)

    def error(self, error: RllmError) -> bytes:
        return _event({"error": {"message": one_line(error), "type": "server_error", "code": type(error).__name__}})

    def _chunk(self, index: int, text: str, rest: JsonDict) -> bytes:
        return _event({**self._head, "choices": [{"index": index, "text": text, **rest}]})


def _event(value: JsonDict) -> bytes:
    return b"data: %s\n\n" % dumps(value)
