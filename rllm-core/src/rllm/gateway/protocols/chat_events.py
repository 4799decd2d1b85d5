"""The parts of a chat/completions reply that streams and whole bodies share, and the stream itself."""

from __future__ import annotations

from rllm.errors import RllmError, one_line
from rllm.gateway.json_text import dumps
from rllm.gateway.wire import Choice, Delta, Reply, Request
from rllm.types import JsonDict, Usage

__all__ = ["ChatEvents", "choice_tail", "usage_body"]

_LEAST = -9999.0
"""OpenAI's stand-in for minus infinity, which JSON cannot say."""


def usage_body(usage: Usage) -> JsonDict:
    """Usage in OpenAI's shape."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def choice_tail(request: Request, choice: Choice) -> JsonDict:
    """What a client may ask for besides the message: log-probabilities and token ids."""
    tail: JsonDict = {"logprobs": None}
    if request.logprobs and choice.logprobs.size:
        tail["logprobs"] = {
            "content": [
                {"token": token, "logprob": max(logprob, _LEAST), "bytes": list(token.encode()), "top_logprobs": []}
                for token, logprob in zip(choice.tokens(), choice.logprobs.tolist(), strict=True)
            ]
        }
    if request.return_token_ids:
        tail["token_ids"] = choice.ids.tolist()
    return tail


class ChatEvents:
    """One stream of `chat.completion.chunk` events."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._head: JsonDict = {}
        self._said: dict[int, list[int]] = {}
        """Characters of reasoning and of content that each choice has been given."""
        self._ids_said: dict[int, int] = {}
        self._is_raw = False
        """Whether the provider's own chunks were passed on, its finish reason and usage among them."""

    def start(self, reply_id: str, model: str, created: int) -> bytes:
        self._head = {"id": reply_id, "object": "chat.completion.chunk", "created": created, "model": model}
        return b""

    def delta(self, delta: Delta) -> bytes:
        if delta.raw is not None:
            self._is_raw = True
            return _event({**delta.raw, "id": self._head["id"]})
        opened = self._open(delta.index)
        said = self._said[delta.index]
        body: JsonDict = {}
        if delta.reasoning:
            said[0] += len(delta.reasoning)
            body["reasoning_content"] = delta.reasoning
        if delta.content:
            said[1] += len(delta.content)
            body["content"] = delta.content
        if delta.tool_calls:
            body["tool_calls"] = delta.tool_calls
        rest: JsonDict = {}
        if delta.ids is not None and self._request.return_token_ids:
            self._ids_said[delta.index] = self._ids_said.get(delta.index, 0) + delta.ids.size
            rest["token_ids"] = delta.ids.tolist()
        return opened + (self._chunk(delta.index, body, rest) if body or rest else b"")

    def finish(self, reply: Reply) -> bytes:
        if self._is_raw:
            return b"data: [DONE]\n\n"
        parts = []
        for index, choice in enumerate(reply.choices):
            parts.append(self._open(index))
            reasoning, content = self._said[index]
            message = choice.message
            body: JsonDict = {}
            if rest := (message.get("reasoning_content") or "")[reasoning:]:
                body["reasoning_content"] = rest
            if rest := (message.get("content") or "")[content:]:
                body["content"] = rest
            if calls := message.get("tool_calls"):
                body["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
            if body:
                parts.append(self._chunk(index, body, {}))
            tail = choice_tail(self._request, choice)
            if self._request.return_token_ids:
                tail["token_ids"] = tail["token_ids"][self._ids_said.get(index, 0) :]
            if index == 0 and self._request.return_token_ids:
                tail["prompt_token_ids"] = reply.prompt_ids.tolist()
            parts.append(self._chunk(index, {}, tail, choice.finish_reason.value))
        if self._request.include_usage:
            parts.append(_event({**self._head, "choices": [], "usage": usage_body(reply.usage)}))
        parts.append(b"data: [DONE]\n\n")
        return b"".join(parts)

    def error(self, error: RllmError) -> bytes:
        return _event({"error": {"message": one_line(error), "type": "server_error", "code": type(error).__name__}})

    def _open(self, index: int) -> bytes:
        if index in self._said:
            return b""
        self._said[index] = [0, 0]
        return self._chunk(index, {"role": "assistant", "content": ""}, {})

    def _chunk(self, index: int, delta: JsonDict, rest: JsonDict, finish: str | None = None) -> bytes:
        chunk = dict(self._head)
        prompt_ids = rest.pop("prompt_token_ids", None)
        chunk["choices"] = [{"index": index, "delta": delta, "finish_reason": finish, **rest}]
        if prompt_ids is not None:
            chunk["prompt_token_ids"] = prompt_ids
        return _event(chunk)


def _event(value: JsonDict) -> bytes:
    return b"data: %s\n\n" % dumps(value)
