"""OpenAI's Responses, streaming and not, and its count of input tokens.

Nothing is stored: `previous_response_id` and `conversation` are refused, and agents send the whole history, as Codex,
the Agents SDK and others do by default. What a request cannot do here but a provider may (items of hosted tools, a
schema for the text) is listed in `Request.unsupported` and decided by the upstream. Unknown fields are tolerated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rllm.errors import RequestError, RllmError
from rllm.gateway.json_text import dumps
from rllm.gateway.protocols.chat import ChatAdapter, openai_error
from rllm.gateway.protocols.responses_events import ResponsesEvents
from rllm.gateway.protocols.responses_items import InputReader
from rllm.gateway.protocols.responses_tools import Tools, read_choice, show
from rllm.gateway.sampling import ClientSampling
from rllm.gateway.wire import Incoming, Reply, Request
from rllm.ids import new_id
from rllm.types import JsonDict, WireProtocol

__all__ = ["ResponsesAdapter"]


class ResponsesAdapter:
    """`POST …/responses` and `…/responses/input_tokens`."""

    protocol = WireProtocol.RESPONSES

    def parse(self, incoming: Incoming) -> Request:
        body = incoming.body
        _refuse_stored(body)
        tools = Tools(body)
        reader = _read(body)
        form = _response_format(body.get("text"))
        unsupported = list(dict.fromkeys(reader.unknown))
        if form is not None:
            unsupported.append(f"text.format {form['type']!r}")
        if body.get("prompt") is not None:
            unsupported.append("prompt (a stored template)")
        reasoning = body.get("reasoning")
        effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
        parallel = body.get("parallel_tool_calls")
        return Request(
            messages=reader.messages,
            sampling=ClientSampling.parse(body),
            reply_id=new_id("resp"),
            protocol=WireProtocol.RESPONSES,
            tools=tools.shown or None,
            parse_tools=body.get("tool_choice") != "none",
            tool_choice=read_choice(body.get("tool_choice")),
            parallel_tool_calls=parallel if isinstance(parallel, bool) else None,
            response_format=form,
            reasoning_effort=effort if isinstance(effort, str) else None,
            stream=bool(body.get("stream")),
            include_usage=True,
            logprobs=_wants_logprobs(body),
            return_token_ids=bool(body.get("return_token_ids")),
            unsupported=tuple(unsupported),
            is_retry=incoming.headers.get("x-stainless-retry-count", "0") != "0",
            raw=body,
            headers=incoming.headers,
        )

    def body(self, request: Request, reply: Reply) -> bytes:
        if reply.raw is not None:
            return dumps(reply.raw)
        return dumps(self.events(request).body(reply))

    def events(self, request: Request) -> ResponsesEvents:
        return ResponsesEvents(request, Tools(request.raw))

    def error(self, error: RllmError) -> tuple[int, bytes]:
        return openai_error(error)

    def count(self, tokens: int) -> bytes:
        return dumps({"object": "response.input_tokens", "input_tokens": tokens})

    def models(self, names: Sequence[str], created: int) -> bytes:
        return ChatAdapter().models(names, created)


def _refuse_stored(body: JsonDict) -> None:
    if (earlier := body.get("previous_response_id")) is not None:
        raise RequestError(
            f"previous_response_id is {show(earlier)}, but no response is stored here; send the whole history as input",
            code="previous_response_not_found",
        )
    if (conversation := body.get("conversation")) is not None:
        raise RequestError(
            f"conversation is {show(conversation)}, but none is stored here; send the whole history as input",
            code="conversation_not_found",
        )
    if body.get("background"):
        raise RequestError("background is true, expected false: replies are given at once and are not stored")


def _read(body: JsonDict) -> InputReader:
    reader = InputReader()
    instructions = body.get("instructions")
    if not isinstance(instructions, str | None):
        raise RequestError(f"instructions is {show(instructions)}, expected text")
    if instructions:
        reader.messages.append({"role": "system", "content": instructions})
    reader.read(body.get("input"))
    if not reader.messages and not reader.unknown:
        raise RequestError("input is empty, expected text or at least one item")
    return reader


def _response_format(text: Any) -> JsonDict | None:
    """`text.format` as chat/completions spells it; None for plain text."""
    form = text.get("format") if isinstance(text, dict) else None
    if not isinstance(form, dict) or not isinstance(kind := form.get("type"), str) or kind == "text":
        return None
    if kind != "json_schema":
        return {"type": kind}
    schema = {name: form[name] for name in ("name", "description", "schema", "strict") if form.get(name) is not None}
    return {"type": kind, "json_schema": schema}


def _wants_logprobs(body: JsonDict) -> bool:
    include = body.get("include")
    return bool(body.get("top_logprobs")) or (isinstance(include, list) and "message.output_text.logprobs" in include)
