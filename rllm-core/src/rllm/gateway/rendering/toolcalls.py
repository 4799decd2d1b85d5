"""Tool calls that a model writes as text, `<tool_call>{"name": …, "arguments": {…}}</tool_call>` (Hermes style).

A block that is not exactly one well-formed call stays in the text, so that the agent sees what the model wrote; it
is never executed by half, and never an error.
"""

from __future__ import annotations

import json
from typing import Any

from rllm.ids import new_id
from rllm.types import JsonDict

__all__ = ["CLOSE", "OPEN", "parse_tool_calls"]

OPEN, CLOSE = "<tool_call>", "</tool_call>"

_decoder = json.JSONDecoder(strict=False)
"""Not strict: models write raw newlines inside strings."""


def parse_tool_calls(text: str) -> tuple[str, list[JsonDict]]:
    """The text without its well-formed calls, and those calls in OpenAI's shape with fresh ids."""
    start = text.find(OPEN)
    if start < 0:
        return text, []
    calls: list[JsonDict] = []
    kept: list[str] = []
    position = 0
    while start >= 0:
        found = _block(text, start + len(OPEN))
        if found is None:
            start = text.find(OPEN, start + len(OPEN))
            continue
        call, end = found
        kept.append(text[position:start].rstrip())
        calls.append(call)
        position = end
        start = text.find(OPEN, end)
    if not calls:
        return text, []
    kept.append(text[position:].rstrip())
    return "".join(kept), calls


def _block(text: str, start: int) -> tuple[JsonDict, int] | None:
    """The call whose JSON begins after `start`, and where its block ends."""
    while start < len(text) and text[start].isspace():
        start += 1
    try:
        value, end = _decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    while end < len(text) and text[end].isspace():
        end += 1
    if not text.startswith(CLOSE, end):
        return None
    call = _call(value)
    return None if call is None else (call, end + len(CLOSE))


def _call(value: Any) -> JsonDict | None:
    if not isinstance(value, dict) or not isinstance(name := value.get("name"), str) or not name:
        return None
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = _decoder.decode(arguments)
        except (ValueError, RecursionError):
            return None
    arguments = arguments or {}
    if not isinstance(arguments, dict):
        return None
    return {
        "id": new_id("call"),
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
    }
