"""Messages as chat templates expect them, whatever spelling the client chose."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rllm.errors import RequestError
from rllm.gateway.canonical import content_text
from rllm.types import JsonDict, Message

__all__ = ["for_template"]

_TEXT_BLOCKS = frozenset({"text", "input_text", "output_text", "refusal"})


def for_template(
    messages: Sequence[Message], *, arguments_as_text: bool = False, content_as_blocks: bool = False
) -> list[Message]:
    """Copies with string content, parsed tool arguments and the roles that templates know.

    Raises `RequestError` for content that a text model cannot be shown.
    """
    normal = [_message(message, at, arguments_as_text=arguments_as_text) for at, message in enumerate(messages)]
    if content_as_blocks:
        for message in normal:
            message["content"] = [{"type": "text", "text": message["content"]}] if message["content"] else []
    return normal


def _message(message: Message, at: int, *, arguments_as_text: bool) -> Message:
    normal = dict(message)
    if message["role"] == "developer":
        normal["role"] = "system"
    content = message.get("content")
    if not isinstance(content, str):
        _only_text(content, at)
        normal["content"] = content_text(content)
    calls = message.get("tool_calls")
    if calls:
        normal["tool_calls"] = [_call(call, as_text=arguments_as_text) for call in calls]
    else:
        normal.pop("tool_calls", None)
    return normal


def _only_text(content: Any, at: int) -> None:
    if isinstance(content, list):
        for block in content:
            kind = block.get("type") if isinstance(block, dict) else "text"
            if not isinstance(kind, str) or kind not in _TEXT_BLOCKS:
                raise RequestError(
                    f"messages[{at}] has a content block of type {kind!r}; this model reads text only",
                    code="unsupported_content",
                )


def _call(call: JsonDict, *, as_text: bool) -> JsonDict:
    function = dict(call["function"])
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = _parsed(arguments)
    if arguments is None or arguments == "":
        arguments = {}
    if as_text and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    function["arguments"] = arguments
    return {**call, "function": function}


def _parsed(arguments: str) -> Any:
    """The arguments as a mapping; text that is not one stays as the model wrote it."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments
