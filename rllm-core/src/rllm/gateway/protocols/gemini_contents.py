"""Gemini's contents as messages, and a message as Gemini's parts.

The model's turn may come back in several contents, one for each chunk that was streamed: neighbours are one message.
A function's response may lack the id of its call, which the Python SDK drops, and be named instead: it answers the
first call of the turn before that has its id, else its name, else that is still open. Thought signatures are opaque
here: the gateway makes them up and does not need them back.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from rllm.errors import RequestError
from rllm.gateway.protocols.gemini_keys import entry, listed, show
from rllm.types import JsonDict, Message

__all__ = ["parts_of", "read_contents", "read_instruction"]

_ROLES = {"user": "user", "model": "assistant", "function": "user", "tool": "user"}
_UNKNOWN = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
"""Parts that only Google's own servers can make or run."""
_WRITTEN = "rllm_arguments_as_written"
"""Arguments that are no JSON object, which `args` cannot hold otherwise."""
_SIGNATURE = b64encode(b"rllm:unsigned").decode()


def read_contents(value: Any) -> list[Message]:
    """The messages. Raises `RequestError` naming the part that cannot be understood."""
    contents = listed(value, "contents")
    if not contents:
        raise RequestError(f"contents is {show(value)}, expected a non-empty list of contents")
    reading = _Reading()
    for at, content in enumerate(contents):
        role = content.get("role") or "user"
        if not isinstance(role, str) or role not in _ROLES:
            raise RequestError(f"contents[{at}].role is {show(role)}, expected 'user' or 'model'")
        where = f"contents[{at}].parts"
        parts = listed(content.get("parts"), where)
        if _ROLES[role] == "assistant":
            reading.model_turn(parts, where)
        else:
            reading.user_turn(parts, where)
    return reading.messages


def read_instruction(value: Any) -> list[Message]:
    """The system message, if the instruction says anything."""
    if isinstance(value, str):
        value = {"parts": [{"text": value}]}
    if value is not None and not isinstance(value, dict):
        raise RequestError(f"systemInstruction is {show(value)}, expected a content")
    parts = listed((value or {}).get("parts"), "systemInstruction.parts")
    blocks = [block for at, part in enumerate(parts) if (block := _block(part, f"systemInstruction.parts[{at}]"))]
    return [{"role": "system", "content": _content(blocks)}] if blocks else []


def parts_of(message: Message, *, thoughts: bool = True) -> list[JsonDict]:
    """The parts that say `message`; none for an empty one."""
    parts: list[JsonDict] = []
    reasoning = message.get("reasoning_content")
    if reasoning and thoughts:
        parts.append({"text": reasoning, "thought": True})
    if content := message.get("content"):
        parts.append({"text": content})
    for at, call in enumerate(message.get("tool_calls") or ()):
        part: JsonDict = {"functionCall": _function_call(call)}
        if reasoning and at == 0:
            part["thoughtSignature"] = _SIGNATURE
        parts.append(part)
    return parts


def _function_call(call: JsonDict) -> JsonDict:
    function = call["function"]
    written = function.get("arguments") or "{}"
    try:
        args = json.loads(written, strict=False)
        json.dumps(args, allow_nan=False)
    except (ValueError, RecursionError):
        args = None
    if not isinstance(args, dict):
        args = {_WRITTEN: written}
    return {"id": call["id"], "name": function["name"], "args": args}


class _Reading:
    """Messages so far, and the calls of the model's last turn that no response has answered."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._open: list[tuple[str, str]] = []
        """Id and name of each."""
        self._calls = 0

    def model_turn(self, parts: list[JsonDict], where: str) -> None:
        last = self.messages[-1] if self.messages else None
        if last is None or last["role"] != "assistant":
            self._open = []
            last = {"role": "assistant", "content": ""}
            self.messages.append(last)
        blocks: list[JsonDict] = []
        for at, part in enumerate(parts):
            place = f"{where}[{at}]"
            if (call := entry(part, "functionCall")) is not None:
                last.setdefault("tool_calls", []).append(self._call(call, f"{place}.functionCall"))
            elif entry(part, "functionResponse") is not None:
                raise RequestError(f"{place} is a functionResponse of the model, expected it in a user's content")
            elif part.get("thought") is True:
                last["reasoning_content"] = last.get("reasoning_content", "") + _text(part, place)
            elif (block := _block(part, place)) is not None:
                blocks.append(block)
        _append(last, blocks)

    def user_turn(self, parts: list[JsonDict], where: str) -> None:
        blocks: list[JsonDict] = []
        before = len(self.messages)
        for at, part in enumerate(parts):
            place = f"{where}[{at}]"
            if (response := entry(part, "functionResponse")) is not None:
                self._say(blocks)
                blocks = []
                self.messages.append(self._response(response, f"{place}.functionResponse"))
            elif entry(part, "functionCall") is not None:
                raise RequestError(f"{place} is a functionCall of the user, expected it in a model's content")
            elif part.get("thought") is not True and (block := _block(part, place)) is not None:
                blocks.append(block)
        self._say(blocks)
        if len(self.messages) == before:
            self.messages.append({"role": "user", "content": ""})

    def _say(self, blocks: list[JsonDict]) -> None:
        if blocks:
            self.messages.append({"role": "user", "content": _content(blocks)})

    def _call(self, call: Any, where: str) -> JsonDict:
        name = call.get("name") if isinstance(call, dict) else None
        if not isinstance(name, str) or not name:
            raise RequestError(f"{where} is {show(call)}, expected an object with a name")
        args = call.get("args")
        if args is not None and not isinstance(args, dict):
            raise RequestError(f"{where}.args is {show(args)}, expected an object")
        self._calls += 1
        id = call.get("id")
        id = id if isinstance(id, str) and id else f"call_{self._calls}"
        self._open.append((id, name))
        written = (args or {}).get(_WRITTEN)
        arguments = written if isinstance(written, str) else json.dumps(args or {}, ensure_ascii=False)
        return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}

    def _response(self, value: Any, where: str) -> Message:
        if not isinstance(value, dict):
            raise RequestError(f"{where} is {show(value)}, expected an object")
        response = value.get("response")
        message: Message = {"role": "tool", "tool_call_id": self._answered(value.get("id"), value.get("name"))}
        text = _said(response)
        media = listed(value.get("parts"), f"{where}.parts")
        blocks = [block for at, part in enumerate(media) if (block := _block(part, f"{where}.parts[{at}]"))]
        message["content"] = [{"type": "text", "text": text}, *blocks] if blocks else text
        if isinstance(response, dict) and list(response) == ["error"]:
            message["is_error"] = True
        return message

    def _answered(self, id: Any, name: Any) -> str:
        """The id of the call that a response answers, which is open no longer."""
        found = next((each for each in self._open if each[0] == id), None)
        found = found or next((each for each in self._open if each[1] == name), None)
        found = found or next(iter(self._open), None)
        if found is None:
            return id if isinstance(id, str) and id else f"call_{self._calls}"
        self._open.remove(found)
        return found[0]


def _said(response: Any) -> str:
    """What a function answered, as text; `output`, `result` and `error` are the names that clients wrap it in."""
    if isinstance(response, dict) and len(response) == 1:
        [(key, value)] = response.items()
        if key in ("output", "result", "error"):
            response = value
    if isinstance(response, str):
        return response
    return "" if response is None else json.dumps(response, ensure_ascii=False)


def _block(part: JsonDict, where: str) -> JsonDict | None:
    """The block that a part of text or media means; None for one that says nothing."""
    if (data := entry(part, "inlineData")) is not None:
        kind, inline = (entry(data, "mimeType"), data.get("data")) if isinstance(data, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(inline, str):
            raise RequestError(f"{where}.inlineData is {show(data)}, expected an object with mimeType and data")
        plain = inline.translate({ord("-"): "+", ord("_"): "/"})  # SDKs use the alphabet of URLs
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{plain}"}}
    if (file := entry(part, "fileData")) is not None:
        uri = entry(file, "fileUri") if isinstance(file, dict) else None
        if not isinstance(uri, str):
            raise RequestError(f"{where}.fileData is {show(file)}, expected an object with fileUri")
        return {"type": "image_url", "image_url": {"url": uri}}
    for name in _UNKNOWN:
        if entry(part, name) is not None:
            raise RequestError(
                f"{where} is a part of kind {name}, which only Google's servers can make; expected text, inlineData, "
                "fileData, functionCall or functionResponse",
                code="unsupported_content",
            )
    text = _text(part, where)
    return {"type": "text", "text": text} if text else None


def _text(part: JsonDict, where: str) -> str:
    text = part.get("text")
    if text is None and not part.keys() - {"text", "thought", "thoughtSignature", "thought_signature"}:
        return ""
    if not isinstance(text, str):
        raise RequestError(f"{where} is {show(part)}, expected text, inlineData, functionCall or functionResponse")
    return text


def _content(blocks: list[JsonDict]) -> Any:
    return blocks[0]["text"] if len(blocks) == 1 and "text" in blocks[0] else blocks


def _append(message: Message, blocks: list[JsonDict]) -> None:
    """Add to an assistant's content, which is text for as long as that is enough."""
    content = message["content"]
    if isinstance(content, str) and all("text" in block for block in blocks):
        message["content"] = content + "".join(block["text"] for block in blocks)
    else:
        before = [{"type": "text", "text": content}] if isinstance(content, str) and content else content or []
        message["content"] = [*before, *blocks]
