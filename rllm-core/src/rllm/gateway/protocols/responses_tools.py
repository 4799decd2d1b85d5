"""The tools of a Responses request: what the model sees of them, and how a call of one is spelt on the wire.

* `function` tools are shown as they are.
* `custom` tools take free text, which a call cannot hold by itself: they are shown as functions with one string,
  `input`, and their calls go back as `custom_tool_call` items.
* `namespace` tools are groups: each member is shown under `namespace__name`, and its calls go back with both names.
* Other kinds (`web_search`, `mcp`, `local_shell` …) need machinery of the provider's, which a sampled model does not
  have. They are not shown to it, and are no error: agents offer them to every model.

Tools that an item of the input adds (`additional_tools`) are tools of the whole request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from rllm.errors import RequestError
from rllm.types import JsonDict

__all__ = ["Tools", "custom_arguments", "read_choice", "show", "tool_name"]

_NOT_TEXT = 'expected {"input": text}, not '
"""Before the arguments of a call of a custom tool that are something else. The tool refuses them, and the text says
why; taken off again when the call comes back, so that it is still the call that the model made."""


class _Spelling(NamedTuple):
    """A tool as its client knows it."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


class Tools:
    """The tools of one request. Raises `RequestError` for a list of them that is malformed."""

    def __init__(self, body: JsonDict) -> None:
        self.shown: list[JsonDict] = []
        """In the shape that `rllm.gateway.wire` describes."""
        self._spellings: dict[str, _Spelling] = {}
        self._read(body.get("tools"), "tools")
        items = body.get("input")
        for at, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict) and item.get("type") == "additional_tools":
                self._read(item.get("tools"), f"input[{at}].tools")

    def _read(self, tools: Any, where: str) -> None:
        if not isinstance(tools, list | None):
            raise RequestError(f"{where} is {show(tools)}, expected a list of tools")
        for at, tool in enumerate(tools or ()):
            kind = tool.get("type") if isinstance(tool, dict) else None
            if not isinstance(kind, str):
                raise RequestError(f"{where}[{at}] is {show(tool)}, expected an object with a type")
            if kind == "namespace":
                namespace = _name(tool, f"{where}[{at}]")
                for member in tool["tools"] if isinstance(tool.get("tools"), list) else ():
                    if isinstance(member, dict) and member.get("type") in ("function", "custom"):
                        self._add(member, f"{where}[{at}].tools", namespace)
            elif kind in ("function", "custom"):
                self._add(tool, f"{where}[{at}]", None)

    def _add(self, tool: JsonDict, where: str, namespace: str | None) -> None:
        spelling = _Spelling(_name(tool, where), namespace, tool["type"] == "custom")
        name = tool_name(namespace, spelling.name)
        if name in self._spellings:
            return  # the model can only mean the first of two that are called alike
        self._spellings[name] = spelling
        function: JsonDict = {"name": name}
        description = _text(tool.get("description"))
        if spelling.is_custom:
            description += _grammar(tool.get("format"))
            parameters: Any = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        else:
            parameters = tool.get("parameters")
        if description:
            function["description"] = description
        if isinstance(parameters, dict):
            function["parameters"] = parameters
        self.shown.append({"type": "function", "function": function})

    def call_item(self, call: Mapping[str, Any]) -> JsonDict:
        """A tool call of the model's as an output item, which has no id yet."""
        function = call["function"]
        spelling = self._spellings.get(function["name"]) or _Spelling(function["name"])
        item: JsonDict = {"type": "function_call", "id": "", "call_id": call["id"], "name": spelling.name}
        if spelling.namespace is not None:
            item["namespace"] = spelling.namespace
        if spelling.is_custom:
            item["type"] = "custom_tool_call"
            item["input"] = _custom_input(function["arguments"])
        else:
            item["arguments"] = function["arguments"]
        item["status"] = "completed"
        return item


def _custom_input(arguments: str) -> str:
    try:
        value = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and isinstance(value.get("input"), str) and len(value) == 1:
        return str(value["input"])
    return _NOT_TEXT + arguments


def custom_arguments(text: str) -> str:
    """The arguments of a call whose item holds `text`."""
    if text.startswith(_NOT_TEXT):
        return text[len(_NOT_TEXT) :]
    return json.dumps({"input": text}, ensure_ascii=False)


def tool_name(namespace: str | None, name: str) -> str:
    """What the model calls a tool."""
    return f"{namespace}__{name}" if namespace else name


def read_choice(choice: Any) -> str | JsonDict | None:
    """`tool_choice` as chat/completions spells it; None for what only a provider's own tools know."""
    if isinstance(choice, str):
        return choice if choice in ("auto", "none", "required") else None
    if not isinstance(choice, dict):
        return None
    if choice.get("type") in ("function", "custom") and isinstance(name := choice.get("name"), str):
        return {"type": "function", "function": {"name": name}}
    if choice.get("type") == "allowed_tools":
        return "required" if choice.get("mode") == "required" else "auto"
    return None


def show(value: Any) -> str:
    """The value for a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _name(tool: JsonDict, where: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(f"{where} is {show(tool)}, expected a tool with a name")
    return name


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _grammar(form: Any) -> str:
    """What a model without constrained sampling must be told of a custom tool's input."""
    if not isinstance(form, dict) or not isinstance(form.get("definition"), str):
        return ""
    return f"\n\nThe input must match this {_text(form.get('syntax')) or 'formal'} grammar:\n{form['definition']}"
