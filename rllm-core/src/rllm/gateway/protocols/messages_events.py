"""What streams and whole bodies of Anthropic's Messages share, errors, and the stream itself.

Tool calls are streamed whole, when the reply is complete: only then is it known that their arguments are an object.
"""

from __future__ import annotations

import json

from rllm.errors import ContextOverflow, RequestError, RllmError, UpstreamError, one_line
from rllm.gateway.json_text import dumps
from rllm.gateway.protocols.messages_blocks import SIGNATURE, blocks_of, signed
from rllm.gateway.wire import Choice, Delta, Reply
from rllm.ids import new_id
from rllm.types import FinishReason, JsonDict, Usage, WireProtocol

__all__ = ["MessagesEvents", "ending", "messages_error", "usage_body"]

_STOP = {
    FinishReason.STOP: "end_turn",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.CONTENT_FILTER: "refusal",
    FinishReason.ABORT: "end_turn",
}
_KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def ending(choice: Choice) -> JsonDict:
    """Why the reply ended."""
    if choice.stop is not None and choice.finish_reason is FinishReason.STOP:
        return {"stop_reason": "stop_sequence", "stop_sequence": choice.stop}
    return {"stop_reason": _STOP[choice.finish_reason], "stop_sequence": None}


def usage_body(usage: Usage) -> JsonDict:
    """Usage in Anthropic's shape, where tokens from the cache are counted beside the input."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def messages_error(error: RllmError) -> tuple[int, JsonDict]:
    """Status and body; an Anthropic provider's own error passes through as it came."""
    status = error.status if isinstance(error, RequestError | UpstreamError) else 500
    message = one_line(error)
    if isinstance(error, UpstreamError) and error.protocol == WireProtocol.MESSAGES and (own := _object(error.body)):
        return status, own
    if isinstance(error, ContextOverflow):
        # Claude Code compacts its history when it reads these words.
        numbers = "" if error.prompt_tokens is None else f": {error.prompt_tokens} tokens"
        limit = f" ({message})" if error.limit_tokens is None else f" > {error.limit_tokens} maximum"
        message = f"prompt is too long{numbers}{limit}"
    kind = _KINDS.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")
    details = {"type": kind, "message": message}
    return status, {"type": "error", "error": details, "request_id": new_id("req")}


def _object(text: str) -> JsonDict | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class MessagesEvents:
    """One stream of named events."""

    def __init__(self) -> None:
        self._message: JsonDict = {}
        self._begun = False
        self._is_raw = False
        """Whether the provider's own events were passed on, its end among them."""
        self._block = -1
        """Index of the last block."""
        self._open = ""
        """Its type while more can be added to it."""
        self._signature = SIGNATURE
        self._said = {"thinking": 0, "text": 0}
        """Characters."""

    def start(self, reply_id: str, model: str, created: int) -> bytes:
        self._message = {"id": reply_id, "type": "message", "role": "assistant", "model": model, "content": []}
        self._message |= {"stop_reason": None, "stop_sequence": None, "usage": usage_body(Usage())}
        return b""

    def delta(self, delta: Delta) -> bytes:
        if delta.raw is not None:
            self._is_raw = True
            return self._pass(delta.raw)
        return self._begin() + self._say("thinking", delta.reasoning) + self._say("text", delta.content)

    def finish(self, reply: Reply) -> bytes:
        if self._is_raw:
            return b""
        choice = reply.choices[0]
        self._signature = signed(choice.message)
        parts = [self._begin()]
        if reasoning := (choice.message.get("reasoning_content") or "")[self._said["thinking"] :]:
            parts.append(self._say("thinking", reasoning))
        parts.append(self._say("text", (choice.message.get("content") or "")[self._said["text"] :]))
        parts.append(self._close())
        for block in blocks_of(choice.message):
            if block["type"] in ("tool_use", "redacted_thinking"):
                parts.append(self._whole(block))
        parts.append(_event("message_delta", delta=ending(choice), usage=usage_body(reply.usage)))
        parts.append(_event("message_stop"))
        return b"".join(parts)

    def error(self, error: RllmError) -> bytes:
        return _event("error", error=messages_error(error)[1]["error"])

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return _event("message_start", message=self._message)

    def _say(self, kind: str, text: str) -> bytes:
        """A piece of reasoning or text, in the block that is open or in a new one."""
        if not text:
            return b""
        self._said[kind] += len(text)
        opened = b""
        if self._open != kind:
            empty = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": ""}
            opened = self._close() + self._start({"type": kind, **empty})
            self._open = kind
        return opened + self._piece({"type": f"{kind}_delta", kind: text})

    def _whole(self, block: JsonDict) -> bytes:
        if block["type"] != "tool_use":
            return self._start(block) + self._stop()
        given = json.dumps(block["input"], ensure_ascii=False)
        piece = {"type": "input_json_delta", "partial_json": given}
        return self._start({**block, "input": {}}) + self._piece(piece) + self._stop()

    def _close(self) -> bytes:
        if not self._open:
            return b""
        kind, self._open = self._open, ""
        if kind != "thinking":
            return self._stop()
        return self._piece({"type": "signature_delta", "signature": self._signature}) + self._stop()

    def _start(self, block: JsonDict) -> bytes:
        self._block += 1
        return _event("content_block_start", index=self._block, content_block=block)

    def _piece(self, delta: JsonDict) -> bytes:
        return _event("content_block_delta", index=self._block, delta=delta)

    def _stop(self) -> bytes:
        return _event("content_block_stop", index=self._block)

    def _pass(self, raw: JsonDict) -> bytes:
        message = raw.get("message")
        if raw.get("type") == "message_start" and isinstance(message, dict):
            raw = {**raw, "message": {**message, "id": self._message["id"]}}
        return _named(str(raw.get("type")), raw)


def _event(kind: str, **rest: object) -> bytes:
    return _named(kind, {"type": kind, **rest})


def _named(kind: str, body: JsonDict) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), dumps(body))
