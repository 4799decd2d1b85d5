"""The parts of a Responses reply that streams and whole bodies share, and the stream itself.

A stream says one item after the other: reasoning, message, calls. Calls come whole at the end, as does reasoning that
a provider goes back to after text. A whole body is what the stream would have left.
"""

from __future__ import annotations

import time
from typing import Any

from rllm.errors import RequestError, RllmError, UpstreamError, one_line
from rllm.gateway.json_text import dumps
from rllm.gateway.protocols.chat_events import choice_tail
from rllm.gateway.protocols.responses_items import pack, reasoning_item
from rllm.gateway.protocols.responses_tools import Tools
from rllm.gateway.wire import Choice, Delta, Reply, Request
from rllm.types import FinishReason, JsonDict

__all__ = ["ResponsesEvents"]

_INCOMPLETE = {FinishReason.LENGTH: "max_output_tokens", FinishReason.CONTENT_FILTER: "content_filter"}
_ECHOED: JsonDict = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": None,
    "user": None,
}
"""What a response repeats of its request, and what it says where the request said nothing."""
_NEVER: JsonDict = {"service_tier": "default", "store": False, "truncation": "disabled"}
"""What is so whatever the request asks for."""


class ResponsesEvents:
    """One stream of events, numbered from 0."""

    def __init__(self, request: Request, tools: Tools) -> None:
        raw = request.raw
        reasoning = raw.get("reasoning")
        wishes = reasoning if isinstance(reasoning, dict) else {}
        self._is_summary = bool(wishes.get("summary") or wishes.get("generate_summary"))
        include = raw.get("include")
        self._packs = isinstance(include, list) and "reasoning.encrypted_content" in include
        self._request = request
        self._tools = tools
        self._head: JsonDict = {}
        self._output: list[JsonDict] = []
        """Items that are complete."""
        self._item: JsonDict | None = None
        """The item that is being said."""
        self._text = ""
        """What has been said of it."""
        self._said = {"reasoning": 0, "message": 0}
        """Characters of each kind that the stream has given."""
        self._number = 0
        self._is_raw = False
        """Whether the provider's own events were passed on, the last one among them."""

    def start(self, reply_id: str, model: str, created: int) -> bytes:
        self._head = {"id": reply_id, "object": "response", "created_at": created, "model": model}
        return b""

    def delta(self, delta: Delta) -> bytes:
        if delta.raw is not None:
            return self._pass_on(delta.raw)
        data = self._begin()
        if delta.reasoning and not self._said["message"]:
            data += self._say("reasoning", delta.reasoning)
        if delta.content:
            data += self._say("message", delta.content)
        return data

    def finish(self, reply: Reply) -> bytes:
        if self._is_raw:
            return b""
        data = self._begin() + self._rest(reply.choices[0])
        response = self._response(reply)
        return data + self._event(f"response.{response['status']}", response=response)

    def error(self, error: RllmError) -> bytes:
        data = b"" if self._is_raw else self._begin()
        response = self._object("failed", self._output)
        response["error"] = {"code": _code(error), "message": one_line(error)}
        return data + self._event("response.failed", response=response)

    def body(self, reply: Reply) -> JsonDict:
        """The response that would end the stream of this reply."""
        self.start(reply.id, reply.model, reply.created)
        self._rest(reply.choices[0])
        return self._response(reply)

    def _pass_on(self, raw: JsonDict) -> bytes:
        self._is_raw = True
        event = dict(raw)
        if isinstance(response := event.get("response"), dict):
            event["response"] = {**response, "id": self._head["id"]}
        if isinstance(number := event.get("sequence_number"), int):
            self._number = number + 1
        return _encode(str(event.get("type")), event)

    def _begin(self) -> bytes:
        if self._number:
            return b""
        response = self._object("in_progress", [])
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def _rest(self, choice: Choice) -> bytes:
        """What the reply says and the stream has not said yet."""
        message = choice.message
        reasoning = message.get("reasoning_content") or ""
        content = message.get("content") or ""
        calls = message.get("tool_calls") or ()
        blocks = message.get("thinking_blocks") if self._packs else None
        data = b""
        if not self._said["message"]:
            if (rest := reasoning[self._said["reasoning"] :]) or (blocks and not self._is_open("reasoning")):
                data += self._say("reasoning", rest)
            if self._is_open("reasoning"):
                data += self._close(blocks=blocks)
                blocks = None
        if (rest := content[self._said["message"] :]) or not (calls or self._said["message"]):
            data += self._say("message", rest)
        if self._is_open("message"):
            data += self._close(choice=choice)
        if (rest := reasoning[self._said["reasoning"] :]) or blocks:
            data += self._say("reasoning", rest) + self._close(blocks=blocks)
        for call in calls:
            data += self._call(call)
        return data

    def _is_open(self, kind: str) -> bool:
        return self._item is not None and self._item["type"] == kind

    def _say(self, kind: str, text: str) -> bytes:
        data = b""
        if not self._is_open(kind):
            data = (self._close() if self._item is not None else b"") + self._open(kind)
        if text:
            self._text += text
            self._said[kind] += len(text)
            more: JsonDict = {"logprobs": []} if kind == "message" else {}
            data += self._of_part(f"{self._stem()}.delta", delta=text, **more)
        return data

    def _open(self, kind: str) -> bytes:
        self._text = ""
        if kind == "reasoning":
            self._item = reasoning_item(self._id("rs"), is_summary=self._is_summary)
        else:
            self._item = {"type": "message", "id": self._id("msg"), "role": "assistant", "content": []}
            self._item["status"] = "in_progress"
        opened = self._event("response.output_item.added", output_index=len(self._output), item=self._item)
        return opened + self._of_part(f"{self._part_stem()}.added", part=self._part([]))

    def _close(self, *, choice: Choice | None = None, blocks: list[JsonDict] | None = None) -> bytes:
        item = self._item
        assert item is not None
        more: JsonDict = {}
        if item["type"] == "message":
            logprobs = choice_tail(self._request, choice)["logprobs"] if choice is not None else None
            more["logprobs"] = logprobs["content"] if logprobs else []
        part = {**self._part(more.get("logprobs", [])), "text": self._text}
        data = self._of_part(f"{self._stem()}.done", text=self._text, **more)
        data += self._of_part(f"{self._part_stem()}.done", part=part)
        item = {**item, ("summary" if part["type"] == "summary_text" else "content"): [part]}
        if item["type"] == "message":
            is_cut = choice is not None and choice.finish_reason in _INCOMPLETE
            item["status"] = "incomplete" if is_cut else "completed"
        elif self._packs:
            item["encrypted_content"] = pack(self._text, blocks)
        self._item = None
        return data + self._done(item)

    def _call(self, call: JsonDict) -> bytes:
        item = self._tools.call_item(call)
        is_custom = item["type"] == "custom_tool_call"
        item["id"] = self._id("ctc" if is_custom else "fc")
        name = "input" if is_custom else "arguments"
        stem = "response.custom_tool_call_input" if is_custom else "response.function_call_arguments"
        where = {"item_id": item["id"], "output_index": len(self._output)}
        begun = {**item, name: "", "status": "in_progress"}
        data = self._event("response.output_item.added", output_index=len(self._output), item=begun)
        if item[name]:
            data += self._event(f"{stem}.delta", **where, delta=item[name])
        rest = {name: item[name]} if is_custom else {"name": item["name"], name: item[name]}
        return data + self._event(f"{stem}.done", **where, **rest) + self._done(item)

    def _done(self, item: JsonDict) -> bytes:
        index = len(self._output)
        self._output.append(item)
        return self._event("response.output_item.done", output_index=index, item=item)

    def _stem(self) -> str:
        """What the events about the open item's text are called."""
        if self._is_open("message"):
            return "response.output_text"
        return "response.reasoning_summary_text" if self._is_summary else "response.reasoning_text"

    def _part_stem(self) -> str:
        is_summary = self._is_summary and self._is_open("reasoning")
        return "response.reasoning_summary_part" if is_summary else "response.content_part"

    def _part(self, logprobs: list[JsonDict]) -> JsonDict:
        if self._is_open("message"):
            return {"type": "output_text", "text": "", "annotations": [], "logprobs": logprobs}
        return {"type": "summary_text" if self._is_summary else "reasoning_text", "text": ""}

    def _of_part(self, kind: str, **fields: Any) -> bytes:
        assert self._item is not None
        at = "summary_index" if "reasoning_summary" in kind else "content_index"
        return self._event(kind, item_id=self._item["id"], output_index=len(self._output), **{at: 0}, **fields)

    def _id(self, prefix: str) -> str:
        """The same for the same reply, however often it is written."""
        return f"{prefix}_{self._head['id'].partition('_')[2]}{len(self._output):02x}"

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return _encode(kind, {"type": kind, "sequence_number": self._number - 1, **fields})

    def _response(self, reply: Reply) -> JsonDict:
        choice, usage = reply.choices[0], reply.usage
        cut = _INCOMPLETE.get(choice.finish_reason)
        response = self._object("completed" if cut is None else "incomplete", self._output)
        if cut is None:
            response["completed_at"] = int(time.time())
        else:
            response["incomplete_details"] = {"reason": cut}
        response["usage"] = {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
        if self._request.return_token_ids:
            response["prompt_token_ids"] = reply.prompt_ids.tolist()
            response["token_ids"] = choice.ids.tolist()
        return response

    def _object(self, status: str, output: list[JsonDict]) -> JsonDict:
        said = self._request.raw
        echo = {name: usual if said.get(name) is None else said[name] for name, usual in _ECHOED.items()}
        begun = {**self._head, "status": status, "error": None, "incomplete_details": None, "output": output}
        return {**begun, "usage": None, **echo, **_NEVER}


def _code(error: RllmError) -> str:
    """How clients tell apart what is worth another try."""
    if isinstance(error, RequestError):
        return error.code
    if isinstance(error, UpstreamError) and error.status == 429:
        return "rate_limit_exceeded"
    return "server_error"


def _encode(kind: str, event: JsonDict) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), dumps(event))
