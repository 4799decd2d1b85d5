"""Items of the Responses protocol and the gateway's messages, both ways.

An assistant's turn is several items (reasoning, message, calls) and one message: items that follow one another are
joined, a second message with text begins another turn. A turn that a client sends back, without ids and status, with
nulls, or with its reasoning dropped or made a `<think>` message, is the turn that was sent out.

Reasoning is shown as `content`; to a client that asked for a summary as `summary`, the only kind such a client keeps.
Where the client asks for `encrypted_content`, it holds the reasoning once more together with what a provider signed,
since that field is what all clients send back unchanged. It is packed, not encrypted.

Items that are neither messages, reasoning nor calls of tools that the agent runs (hosted tools, compaction,
references to stored items, kinds unknown) cannot be shown to a model: they are listed for the upstream to decide.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from rllm.errors import RequestError
from rllm.gateway.canonical import content_text, split_thinking
from rllm.gateway.protocols.responses_tools import custom_arguments, show, tool_name
from rllm.types import JsonDict, Message

__all__ = ["InputReader", "pack", "reasoning_item"]

_TEXT_PARTS = frozenset({"input_text", "output_text", "text", "reasoning_text", "summary_text"})
_ACTIONS = {"local_shell_call": "action", "shell_call": "action", "apply_patch_call": "operation"}
"""Calls of tools that an agent runs itself, and where they hold what is to be done."""
_PACKED = "rllm."


class InputReader:
    """Reads `input`, item by item."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.unknown: list[str] = []
        """Kinds of items that no message can hold."""
        self._turn: Message | None = None
        """The assistant's turn that is being read; the last message."""
        self._goes_on = False
        """Whether the client marks the turn's message as one that another follows."""
        self._thoughts: list[JsonDict] = []
        """Reasoning that belongs to the item after it."""

    def read(self, value: Any) -> None:
        """All of `input`. Raises `RequestError` naming the item that is malformed."""
        if isinstance(value, str):
            self.messages.append({"role": "user", "content": value})
            return
        if not isinstance(value, list):
            raise RequestError(f"input is {show(value)}, expected text or a list of items")
        for at, item in enumerate(value):
            if not isinstance(item, dict):
                raise RequestError(f"input[{at}] is {show(item)}, expected an object")
            self._item(item, f"input[{at}]")
        self._end_turn()

    def _item(self, item: JsonDict, where: str) -> None:
        kind = item.get("type")
        if kind is None:
            kind = "message" if "role" in item else "item_reference"
        if kind == "message":
            self._message(item, where)
        elif kind == "reasoning":
            self._thoughts.append(item)
        elif kind == "function_call":
            arguments = item.get("arguments")
            self._call(item, "" if arguments is None else _text(arguments, f"{where}.arguments"), where)
        elif kind == "custom_tool_call":
            self._call(item, custom_arguments(_text(item.get("input"), f"{where}.input")), where)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._output(item, where)
        elif kind == "additional_tools":
            pass  # read as tools
        elif isinstance(kind, str) and kind in _ACTIONS:
            self._call({"name": kind.removesuffix("_call"), **item}, json.dumps(item.get(_ACTIONS[kind])), where)
        elif isinstance(kind, str) and kind.removesuffix("_output") in _ACTIONS:
            output = item.get("output", item.get("status"))
            self._output({**item, "output": output if isinstance(output, str) else json.dumps(output)}, where)
        else:
            self.unknown.append(f"input item {kind!r}")

    def _message(self, item: JsonDict, where: str) -> None:
        role = item.get("role")
        content = item.get("content")
        if role == "assistant":
            text = "" if content is None else content_text(_content(content, f"{where}.content"))
            thought, answer = split_thinking(text)
            if thought and not answer.strip():
                self._thoughts.append({"content": [{"text": thought}]})
                return
            if self._turn is not None and self._turn["content"].strip() and not self._goes_on:
                self._turn = None
            self._open_turn()["content"] += text
            self._goes_on = item.get("phase") == "commentary"
        elif isinstance(role, str) and role in ("user", "system", "developer"):
            self._end_turn()
            self.messages.append({"role": role, "content": _content(content, f"{where}.content")})
        else:
            raise RequestError(f"{where}.role is {show(role)}, expected user, assistant, system or developer")

    def _call(self, item: JsonDict, arguments: str, where: str) -> None:
        namespace = item.get("namespace")
        name = _text(item.get("name"), f"{where}.name")
        function = {
            "name": tool_name(namespace if isinstance(namespace, str) else None, name),
            "arguments": arguments,
        }
        call = {"id": _call_id(item, where), "type": "function", "function": function}
        self._open_turn().setdefault("tool_calls", []).append(call)

    def _output(self, item: JsonDict, where: str) -> None:
        content = _content(item.get("output"), f"{where}.output")
        self._end_turn()
        self.messages.append({"role": "tool", "tool_call_id": _call_id(item, where), "content": content})

    def _open_turn(self) -> Message:
        """The turn that is being read, with the reasoning before this item."""
        if self._turn is None:
            self._turn = {"role": "assistant", "content": ""}
            self.messages.append(self._turn)
        for item in self._thoughts:
            text, blocks = _thought(item)
            if text:
                self._turn["reasoning_content"] = self._turn.get("reasoning_content", "") + text
            if blocks:
                self._turn.setdefault("thinking_blocks", []).extend(blocks)
        self._thoughts = []
        return self._turn

    def _end_turn(self) -> None:
        if self._thoughts:
            self._open_turn()
        self._turn = None


def _content(value: Any, where: str) -> str | list[JsonDict]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise RequestError(f"{where} is {show(value)}, expected text or a list of parts")
    return [_part(part, f"{where}[{at}]") for at, part in enumerate(value)]


def _part(part: Any, where: str) -> JsonDict:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise RequestError(f"{where} is {show(part)}, expected an object with a type")
    if kind in _TEXT_PARTS:
        return {"type": "text", "text": _text(part.get("text"), f"{where}.text")}
    if kind == "refusal":
        return {"type": "text", "text": _text(part.get("refusal"), f"{where}.refusal")}
    if kind == "input_image" and part.get("image_url") is not None:
        image = {"url": _text(part["image_url"], f"{where}.image_url")}
        if isinstance(part.get("detail"), str):
            image["detail"] = part["detail"]
        return {"type": "image_url", "image_url": image}
    if kind == "input_file":
        names = ("file_data", "file_id", "file_url", "filename")
        return {"type": "file", "file": {name: part[name] for name in names if part.get(name) is not None}}
    return dict(part)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{where} is {show(value)}, expected text")
    return value


def _call_id(item: JsonDict, where: str) -> str:
    return _text(item.get("call_id") or item.get("id"), f"{where}.call_id")


def reasoning_item(item_id: str, *, is_summary: bool) -> JsonDict:
    """An empty item of reasoning; its text goes into a part of `summary` or `content`."""
    item: JsonDict = {"type": "reasoning", "id": item_id, "summary": []}
    if not is_summary:
        item["content"] = []
    return item


def pack(text: str, blocks: list[JsonDict] | None) -> str:
    """Reasoning as `encrypted_content`."""
    return _PACKED + base64.b64encode(json.dumps([text, blocks or []]).encode()).decode()


def _unpack(packed: Any) -> tuple[str, list[JsonDict]]:
    """What `pack` was given; nothing for what it did not make."""
    if not isinstance(packed, str) or not packed.startswith(_PACKED):
        return "", []
    try:
        text, blocks = json.loads(base64.b64decode(packed[len(_PACKED) :], validate=True))
    except (ValueError, TypeError, RecursionError):
        return "", []
    if not isinstance(text, str) or not isinstance(blocks, list) or not all(isinstance(each, dict) for each in blocks):
        return "", []
    return text, blocks


def _thought(item: JsonDict) -> tuple[str, list[JsonDict]]:
    """Text and signed blocks of an item of reasoning; what cannot be read is as if the client had dropped it."""
    text, blocks = _unpack(item.get("encrypted_content"))
    for name in ("content", "summary"):
        parts = item.get(name)
        if not text and isinstance(parts, list):
            text = "\n\n".join(
                part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)
            )
    return text, blocks
