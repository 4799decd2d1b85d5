"""The parts of a Gemini reply that streams and whole bodies share, and the stream itself.

Function calls are streamed whole, as Gemini does, when the reply is complete.
"""

from __future__ import annotations

from rllm.errors import ContextOverflow, RequestError, RllmError, UpstreamError, one_line
from rllm.gateway.json_text import dumps
from rllm.gateway.protocols.gemini_contents import parts_of
from rllm.gateway.wire import Choice, Delta, Reply, Request
from rllm.types import FinishReason, JsonDict, Usage

__all__ = ["GeminiEvents", "candidate", "gemini_error", "usage_body"]

_FINISH = {
    FinishReason.STOP: "STOP",
    FinishReason.TOOL_CALLS: "STOP",
    FinishReason.LENGTH: "MAX_TOKENS",
    FinishReason.CONTENT_FILTER: "SAFETY",
    FinishReason.ABORT: "OTHER",
}
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}
_LEAST = -9999.0
"""Stands for minus infinity, which JSON cannot say."""


def candidate(request: Request, choice: Choice, index: int, parts: list[JsonDict]) -> JsonDict:
    """A complete candidate, or the last piece of one, which says `parts`."""
    made: JsonDict = {
        "content": {"role": "model", "parts": parts or [{"text": ""}]},
        "finishReason": _FINISH[choice.finish_reason],
        "index": index,
    }
    if request.logprobs and choice.logprobs.size:
        logprobs = [max(each, _LEAST) for each in choice.logprobs.tolist()]
        made["avgLogprobs"] = sum(logprobs) / len(logprobs)
        made["logprobsResult"] = {
            "chosenCandidates": [
                {"token": token, "tokenId": id, "logProbability": logprob}
                for token, id, logprob in zip(choice.tokens(), choice.ids.tolist(), logprobs, strict=True)
            ]
        }
    return made


def usage_body(usage: Usage) -> JsonDict:
    """Usage in Gemini's shape, where thoughts are counted beside the candidates."""
    body = {
        "promptTokenCount": usage.prompt_tokens,
        "candidatesTokenCount": usage.completion_tokens - usage.reasoning_tokens,
        "totalTokenCount": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.reasoning_tokens:
        body["thoughtsTokenCount"] = usage.reasoning_tokens
    if usage.cached_tokens:
        body["cachedContentTokenCount"] = usage.cached_tokens
    return body


def gemini_error(error: RllmError) -> tuple[int, JsonDict]:
    """HTTP status and body of an error, in the words of `google.rpc.Status`."""
    status = error.status if isinstance(error, RequestError | UpstreamError) else 500
    message = one_line(error)
    if isinstance(error, ContextOverflow):
        size = "" if error.prompt_tokens is None else f" ({error.prompt_tokens})"
        limit = f": {message}" if error.limit_tokens is None else f" ({error.limit_tokens})."
        message = f"The input token count{size} exceeds the maximum number of tokens allowed{limit}"
    name = _STATUS.get(status, "INVALID_ARGUMENT" if 400 <= status < 500 else "INTERNAL")
    return status, {"error": {"code": status, "message": message, "status": name}}


class GeminiEvents:
    """One stream of `GenerateContentResponse` chunks as server-sent events."""

    def __init__(self, request: Request, *, thoughts: bool) -> None:
        self._request = request
        self._thoughts = thoughts
        self._head: JsonDict = {}
        self._said: dict[int, tuple[int, int]] = {}
        """Characters of reasoning and of content that each candidate has been given."""
        self._is_raw = False
        """Whether the provider's own chunks were passed on, its finish reason and usage among them."""

    def start(self, reply_id: str, model: str, created: int) -> bytes:
        self._head = {"modelVersion": model, "responseId": reply_id}
        return b""

    def delta(self, delta: Delta) -> bytes:
        if delta.raw is not None:
            self._is_raw = True
            return _event({**delta.raw, "responseId": self._head["responseId"]})
        reasoning, content = self._said.get(delta.index, (0, 0))
        self._said[delta.index] = reasoning + len(delta.reasoning), content + len(delta.content)
        parts = parts_of({"reasoning_content": delta.reasoning, "content": delta.content}, thoughts=self._thoughts)
        if not parts:
            return b""
        return self._chunk({"content": {"role": "model", "parts": parts}, "index": delta.index})

    def finish(self, reply: Reply) -> bytes:
        if self._is_raw:
            return b""
        chunks = []
        for index, choice in enumerate(reply.choices):
            reasoning, content = self._said.get(index, (0, 0))
            parts = parts_of(choice.message, thoughts=self._thoughts)
            for part in parts:
                if "text" in part:
                    part["text"] = part["text"][reasoning if part.get("thought") else content :]
            left = [part for part in parts if part.get("text") != ""]
            usage = usage_body(reply.usage) if index == len(reply.choices) - 1 else None
            chunks.append(self._chunk(candidate(self._request, choice, index, left), usage))
        return b"".join(chunks)

    def error(self, error: RllmError) -> bytes:
        return _event(gemini_error(error)[1])

    def _chunk(self, piece: JsonDict, usage: JsonDict | None = None) -> bytes:
        body: JsonDict = {"candidates": [piece]}
        if usage is not None:
            body["usageMetadata"] = usage
        return _event({**body, **self._head})


def _event(value: JsonDict) -> bytes:
    return b"data: %s\r\n\r\n" % dumps(value)
