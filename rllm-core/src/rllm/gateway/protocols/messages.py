"""Anthropic's Messages, streaming and not, and its count of tokens.

Unknown fields are tolerated. `tool_choice` is a wish, as in chat/completions. Tools that Anthropic would run (web
search, code execution) are not shown to the model and are no error, since agents offer them to every model; tools that
the agent runs but that only Claude knows the schema of (`bash_…`, `text_editor_…`), a schema for the text and a reply
that the request begins are listed in `Request.unsupported` and decided by the upstream.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rllm.errors import RequestError, RllmError
from rllm.gateway.json_text import dumps
from rllm.gateway.protocols.messages_blocks import MessageReader, blocks_of, show
from rllm.gateway.protocols.messages_events import MessagesEvents, ending, messages_error, usage_body
from rllm.gateway.sampling import ClientSampling
from rllm.gateway.wire import Incoming, Reply, Request
from rllm.ids import new_id
from rllm.types import JsonDict, WireProtocol

__all__ = ["COUNT", "MessagesAdapter"]

COUNT = "count_tokens"
"""The action of the path that counts."""

_OWN = ("bash_", "text_editor_", "computer_", "memory_")
"""Beginnings of the types of tools that the agent runs and only Claude has learnt."""
_EFFORTS = ((2048, "low"), (16384, "medium"))
"""Thinking budgets in tokens up to which an effort goes; above is high."""


class MessagesAdapter:
    """`POST …/messages` and `…/messages/count_tokens`."""

    protocol = WireProtocol.MESSAGES

    def parse(self, incoming: Incoming) -> Request:
        body = incoming.body
        reader = MessageReader()
        reader.system(body.get("system"))
        reader.read(body.get("messages"))
        if incoming.action != COUNT and body.get("max_tokens") is None:
            raise RequestError("max_tokens: field required")
        tools, unknown = _tools(body.get("tools"))
        form = _response_format(body)
        unsupported = list(dict.fromkeys([*reader.unknown, *unknown]))
        if form is not None:
            unsupported.append(f"output format {form['type']!r}")
        if reader.messages[-1]["role"] == "assistant":
            unsupported.append("a reply that the request begins")
        choice, parallel = _tool_choice(body.get("tool_choice"))
        return Request(
            messages=reader.messages,
            sampling=ClientSampling.parse(body),
            reply_id=new_id("msg"),
            protocol=WireProtocol.MESSAGES,
            tools=tools or None,
            parse_tools=choice != "none",
            tool_choice=choice,
            parallel_tool_calls=parallel,
            response_format=form,
            reasoning_effort=_effort(body),
            stream=bool(body.get("stream")),
            include_usage=True,
            unsupported=tuple(unsupported),
            is_retry=incoming.headers.get("x-stainless-retry-count", "0") != "0",
            raw=body,
            headers=incoming.headers,
        )

    def body(self, request: Request, reply: Reply) -> bytes:
        if reply.raw is not None:
            return dumps(reply.raw)
        choice = reply.choices[0]
        message: JsonDict = {"id": reply.id, "type": "message", "role": "assistant", "model": reply.model}
        message |= {"content": blocks_of(choice.message), **ending(choice), "usage": usage_body(reply.usage)}
        return dumps(message)

    def events(self, request: Request) -> MessagesEvents:
        return MessagesEvents()

    def error(self, error: RllmError) -> tuple[int, bytes]:
        status, body = messages_error(error)
        return status, dumps(body)

    def count(self, tokens: int) -> bytes:
        return dumps({"input_tokens": tokens})

    def models(self, names: Sequence[str], created: int) -> bytes:
        at = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        entries = [{"type": "model", "id": name, "display_name": name, "created_at": at} for name in names]
        ends = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
        return dumps({"data": entries, "has_more": False, **ends})


def _tools(value: Any) -> tuple[list[JsonDict], list[str]]:
    """Those that the model is shown, and the kinds that only Claude knows."""
    if not isinstance(value, list | None):
        raise RequestError(f"tools: {show(value)} is given, expected a list of tools")
    shown, unknown = [], []
    for at, tool in enumerate(value or ()):
        kind = tool.get("type") if isinstance(tool, dict) else 0
        if not isinstance(kind, str | None):
            raise RequestError(f"tools.{at}: {show(tool)} is given, expected a tool")
        if kind not in (None, "custom"):
            if kind.startswith(_OWN):
                unknown.append(f"tool {kind!r}")
            continue
        name = tool.get("name")
        if not isinstance(name, str) or not name:
            raise RequestError(f"tools.{at}.name: {show(name)} is given, expected text")
        function: JsonDict = {"name": name}
        if isinstance(text := tool.get("description"), str):
            function["description"] = text
        if isinstance(schema := tool.get("input_schema"), dict):
            function["parameters"] = schema
        shown.append({"type": "function", "function": function})
    return shown, unknown


def _tool_choice(value: Any) -> tuple[str | JsonDict | None, bool | None]:
    """The choice as chat/completions spells it, and whether several calls in one reply are wanted."""
    if not isinstance(value, dict):
        return None, None
    parallel = False if value.get("disable_parallel_tool_use") is True else None
    kind, name = value.get("type"), value.get("name")
    if kind == "tool" and isinstance(name, str):
        return {"type": "function", "function": {"name": name}}, parallel
    return {"auto": "auto", "any": "required", "none": "none"}.get(str(kind)), parallel


def _response_format(body: JsonDict) -> JsonDict | None:
    config = body.get("output_config")
    form = config.get("format") if isinstance(config, dict) else None
    form = body.get("output_format") if form is None else form
    if not isinstance(form, dict) or not isinstance(kind := form.get("type"), str) or kind == "text":
        return None
    if kind != "json_schema":
        return {"type": kind}
    return {"type": kind, "json_schema": {"name": "reply", "schema": form.get("schema"), "strict": True}}


def _effort(body: JsonDict) -> str | None:
    """How much reasoning is asked for, in words."""
    config, thinking = body.get("output_config"), body.get("thinking")
    if isinstance(thinking, dict):
        if thinking.get("type") == "disabled":
            return "none"
        budget = thinking.get("budget_tokens")
        if isinstance(budget, int):
            return next((effort for limit, effort in _EFFORTS if budget <= limit), "high")
    effort = config.get("effort") if isinstance(config, dict) else None
    return effort if isinstance(effort, str) else None
