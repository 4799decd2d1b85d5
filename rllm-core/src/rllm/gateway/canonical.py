"""When two messages mean the same turn: the key by which the message graph recognises history.

Agents do not send history back byte for byte. Measured on real clients, these differ and are ignored: text as a
string or as a list of text blocks; absent, null, empty-string or empty-list content; `cache_control`; ids and `index`
of tool calls; the spelling of their JSON arguments; reasoning; white space around an assistant's text. Everything
else is compared exactly. `developer` is `system`.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

import orjson

from rllm.types import JsonDict, Message

__all__ = ["History", "content_text", "split_thinking", "start"]


def content_text(content: Any) -> str:
    """The text of a message's content; blocks that are not text count as nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            block if isinstance(block, str) else block["text"]
            for block in content
            if isinstance(block, str) or (isinstance(block, dict) and isinstance(block.get("text"), str))
        )
    return ""


def split_thinking(text: str) -> tuple[str, str]:
    """Reasoning and answer of a text that begins with `<think>…</think>`; no reasoning otherwise."""
    head, mark, rest = text.partition("</think>")
    if mark and head.lstrip().startswith("<think>"):
        return head.lstrip()[len("<think>") :], rest
    return "", text


def start(tools: list[JsonDict] | None) -> History:
    """The key of an empty conversation with these tools, which the prompt shows."""
    state = blake2b(digest_size=16)
    if tools:
        state.update(_dump([_plain(tool) for tool in tools]))
    return History(state)


class History:
    """A conversation's key, one message at a time; copying it starts a branch."""

    __slots__ = ("_state",)

    def __init__(self, state: blake2b) -> None:
        self._state = state

    def add(self, message: Message) -> None:
        """Append one message."""
        self._state.update(_canonical(message))

    def with_reply(self, message: Message) -> bytes:
        """Key of this conversation and `message`, which leaves this one as it is."""
        branch = self._state.copy()
        branch.update(_canonical(message))
        return branch.digest()

    def key(self) -> bytes:
        """Sixteen bytes that say which conversation this is."""
        return self._state.digest()


def _canonical(message: Message) -> bytes:
    role = message.get("role")
    content = message.get("content")
    text = content if isinstance(content, str) else content_text(content)
    rest: list[Any] = []
    if role == "developer":
        role = "system"
    if role == "assistant":
        text = split_thinking(text)[1].strip()
        if calls := message.get("tool_calls"):
            rest.append([_call(call) for call in calls])
    elif role != "tool" and (name := message.get("name")):
        rest.append(name)
    if isinstance(content, list) and (others := [_plain(block) for block in content if not _is_text(block)]):
        rest.append(others)
    data = text.encode("utf-8", "surrogatepass")
    tail = _dump(rest) if rest else b""
    return b"%s %d %d\n%s%s" % (str(role).encode(), len(data), len(tail), data, tail)


def _is_text(block: Any) -> bool:
    return isinstance(block, str) or (isinstance(block, dict) and isinstance(block.get("text"), str))


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return _plain(call)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = _parsed(arguments.strip())
    return [function.get("name"), arguments or {}]


def _parsed(text: str) -> Any:
    try:
        return _numbers(json.loads(text, strict=False)) if text else {}
    except (ValueError, RecursionError):
        return text


def _numbers(value: Any) -> Any:
    """Numbers as JavaScript keeps them: all are doubles, and whole ones are written without a point."""
    if isinstance(value, dict):
        return {key: _numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not -_EXACT <= value <= _EXACT:
        return int(float(value)) if abs(value) < _LARGEST else value
    return value


_EXACT = 2**53
"""Whole numbers beyond it are rounded when they become doubles."""
_LARGEST = 2**1023
_PASSING = frozenset({"cache_control", "eager_input_streaming"})
"""Keys of a block or a tool that clients move or drop from turn to turn."""


def _plain(value: Any) -> Any:
    if isinstance(value, dict) and not _PASSING.isdisjoint(value):
        return {key: each for key, each in value.items() if key not in _PASSING}
    return value


def _dump(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
