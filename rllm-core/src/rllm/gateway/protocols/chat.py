"""OpenAI's chat/completions, streaming and not.

Unknown fields are tolerated. `tool_choice: required` or a named tool is a wish: a sampled model may answer otherwise,
and the reply says what it did. Constraints on the text itself (`response_format`, penalties, `logit_bias`) are listed
in `Request.unsupported` and decided by the upstream.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rllm.errors import RequestError, RllmError, UpstreamError, one_line
from rllm.gateway.json_text import dumps
from rllm.gateway.protocols.chat_events import ChatEvents, choice_tail, usage_body
from rllm.gateway.sampling import ClientSampling
from rllm.gateway.wire import Incoming, Reply, Request
from rllm.ids import new_id
from rllm.types import JsonDict, Message, WireProtocol

__all__ = ["ChatAdapter", "openai_error"]

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_MAX_CHOICES = 128
_OPENAI = (WireProtocol.CHAT, WireProtocol.COMPLETIONS, WireProtocol.RESPONSES)
"""Protocols that share one shape of errors."""


class ChatAdapter:
    """`POST …/chat/completions`."""

    protocol = WireProtocol.CHAT

    def parse(self, incoming: Incoming) -> Request:
        body = incoming.body
        messages = _messages(body.get("messages"))
        n = body.get("n")
        if n is None:
            n = 1
        elif isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MAX_CHOICES:
            raise RequestError(f"n is {n!r}, expected a whole number from 1 to {_MAX_CHOICES}")
        options = body.get("stream_options")
        return Request(
            messages=messages,
            sampling=ClientSampling.parse(body),
            reply_id=new_id("chatcmpl"),
            tools=_tools(body.get("tools")),
            parse_tools=body.get("tool_choice") != "none",
            tool_choice=_of_type(body.get("tool_choice"), str, dict),
            parallel_tool_calls=_of_type(body.get("parallel_tool_calls"), bool),
            response_format=_of_type(body.get("response_format"), dict),
            reasoning_effort=_of_type(body.get("reasoning_effort"), str),
            n=n,
            stream=bool(body.get("stream")),
            include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
            logprobs=bool(body.get("logprobs")),
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
            entry: JsonDict = {"index": index, "message": choice.message}
            entry.update(choice_tail(request, choice))
            entry["finish_reason"] = choice.finish_reason.value
            choices.append(entry)
        body: JsonDict = {
            "id": reply.id,
            "object": "chat.completion",
            "created": reply.created,
            "model": reply.model,
            "choices": choices,
            "usage": usage_body(reply.usage),
        }
        if request.return_token_ids:
            body["prompt_token_ids"] = reply.prompt_ids.tolist()
        return dumps(body)

    def events(self, request: Request) -> ChatEvents:
        return ChatEvents(request)

    def error(self, error: RllmError) -> tuple[int, bytes]:
        return openai_error(error)

    def count(self, tokens: int) -> bytes:
        return b""

    def models(self, names: Sequence[str], created: int) -> bytes:
        entries = [{"id": name, "object": "model", "created": created, "owned_by": "rllm"} for name in names]
        return dumps({"object": "list", "data": entries})


def openai_error(error: RllmError) -> tuple[int, bytes]:
    """Status and body; a provider's own JSON error passes through as it came."""
    if isinstance(error, UpstreamError):
        if error.body and error.protocol in _OPENAI and _is_json_object(error.body):
            return error.status, error.body.encode()
        kind, status, code = "upstream_error", error.status, "upstream_error"
    elif isinstance(error, RequestError):
        kind, status, code = "invalid_request_error", error.status, error.code
    else:
        kind, status, code = "server_error", 500, type(error).__name__
    body = {"error": {"message": one_line(error), "type": kind, "param": None, "code": code}}
    return status, dumps(body)


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _messages(value: Any) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise RequestError(f"messages is {_show(value)}, expected a non-empty list of messages")
    for at, message in enumerate(value):
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role not in _ROLES:
            raise RequestError(f"messages[{at}] is {_show(message)}, expected an object with a known role")
        content = message.get("content")
        if content is not None and not isinstance(content, str) and not _are_blocks(content):
            raise RequestError(f"messages[{at}].content is {_show(content)}, expected text or a list of content blocks")
        if calls := message.get("tool_calls"):
            _check_calls(calls, at)
    return value


def _are_blocks(content: Any) -> bool:
    return isinstance(content, list) and all(isinstance(block, dict | str) for block in content)


def _check_calls(calls: Any, at: int) -> None:
    for index, call in enumerate(calls if isinstance(calls, list) else [calls]):
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(calls, list) or not isinstance(name, str):
            raise RequestError(
                f"messages[{at}].tool_calls[{index}] is {_show(call)}, expected an object with function.name"
            )


def _tools(value: Any) -> list[JsonDict] | None:
    if not value:
        return None
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise RequestError(f"tools is {_show(value)}, expected a list of tools")
    return value


def _unsupported(body: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    form = body.get("response_format")
    if isinstance(form, dict) and form.get("type") not in (None, "text"):
        found.append(f"response_format {form.get('type')!r}")
    found += [name for name in ("frequency_penalty", "presence_penalty", "logit_bias") if body.get(name)]
    return tuple(found)


def _of_type(value: Any, *kinds: type) -> Any:
    """The value where it has a meaning; a client's odd spelling of an option that is only passed on is left out."""
    return value if isinstance(value, kinds) else None


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
