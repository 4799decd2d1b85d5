"""Anthropic's content blocks as the gateway's messages, and a message as content blocks.

Turns of one role that follow one another are one turn, as the API has it: some clients merge them and some do not. A
user's turn with results of tools becomes a tool message for each and a user message for what is said between. Blocks
of an assistant that only Anthropic's own servers can make or read are listed for the upstream to decide.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from rllm.errors import RequestError
from rllm.gateway.protocols.arguments import arguments_object, arguments_text
from rllm.types import JsonDict, Message

__all__ = ["SIGNATURE", "MessageReader", "blocks_of", "show", "signed"]

SIGNATURE = b64encode(b"rllm:unsigned").decode()
"""Of reasoning that no provider signed. Clients send it back unread; the gateway does not need it."""


class MessageReader:
    """Reads `system` and `messages`."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.unknown: list[str] = []
        """Kinds of blocks that no message can hold."""
        self._goes_on = False
        """Whether the last message may be added to by a turn of the same role."""

    def system(self, value: Any) -> None:
        """The instructions, if they say anything. Raises `RequestError` naming the block that is wrong."""
        if value:
            self.messages.append({"role": "system", "content": self._plain(value, "system")})

    def read(self, value: Any) -> None:
        """All of `messages`. Raises `RequestError` naming the block that is wrong."""
        if not isinstance(value, list) or not value:
            raise RequestError(f"messages: {show(value)} is given, expected a non-empty list of messages")
        last = None
        for at, message in enumerate(value):
            role = message.get("role") if isinstance(message, dict) else None
            where = f"messages.{at}"
            self._goes_on = role == last
            if role == "user":
                self._user(message.get("content"), f"{where}.content")
            elif role == "assistant":
                self._assistant(message.get("content"), f"{where}.content")
            elif role == "system":
                content = self._plain(message.get("content"), f"{where}.content")
                self.messages.append({"role": "system", "content": content})
            else:
                raise RequestError(f"{where}.role: {show(role)} is given, expected 'user' or 'assistant'")
            last = role

    def _user(self, content: Any, where: str) -> None:
        if isinstance(content, str):
            self._say([{"type": "text", "text": content}])
            return
        said: list[JsonDict] = []
        before = len(self.messages)
        for at, block in enumerate(_blocks(content, where)):
            place = f"{where}.{at}"
            if block.get("type") == "tool_result":
                if said:
                    self._say(said)
                said = []
                self.messages.append(self._result(block, place))
                self._goes_on = False
            else:
                said += self._block(block, place)
        if said or len(self.messages) == before:
            self._say(said)

    def _say(self, blocks: list[JsonDict]) -> None:
        """One more piece of the user's turn."""
        last = self.messages[-1] if self.messages else None
        if self._goes_on and last is not None and last["role"] == "user":
            content = last["content"]
            before = [{"type": "text", "text": content}] if isinstance(content, str) else content
            last["content"] = [*before, *blocks]
        else:
            alone = len(blocks) == 1 and "text" in blocks[0]
            self.messages.append({"role": "user", "content": blocks[0]["text"] if alone else blocks or ""})
        self._goes_on = True

    def _result(self, block: JsonDict, where: str) -> Message:
        call = block.get("tool_use_id")
        if not isinstance(call, str):
            raise RequestError(f"{where}.tool_use_id: {show(call)} is given, expected the id of a tool_use block")
        content = block.get("content")
        message: Message = {"role": "tool", "tool_call_id": call, "content": ""}
        if content is not None:
            message["content"] = self._plain(content, f"{where}.content")
        if block.get("is_error") is True:
            message["is_error"] = True
        return message

    def _plain(self, content: Any, where: str) -> str | list[JsonDict]:
        """Text, or blocks of text and media."""
        if isinstance(content, str):
            return content
        found: list[JsonDict] = []
        for at, block in enumerate(_blocks(content, where)):
            found += self._block(block, f"{where}.{at}")
        return found[0]["text"] if len(found) == 1 and "text" in found[0] else found

    def _block(self, block: JsonDict, where: str) -> list[JsonDict]:
        kind = block.get("type")
        if kind == "text":
            return [{"type": "text", "text": _text(block.get("text"), f"{where}.text")}]
        if kind == "image":
            return [_image(block.get("source"), f"{where}.source")]
        if kind == "document":
            return self._document(block, where)
        if kind == "search_result":
            content = self._plain(block.get("content"), f"{where}.content")
            return content if isinstance(content, list) else [{"type": "text", "text": content}]
        if isinstance(kind, str) and kind in ("tool_use", "tool_result", "thinking", "redacted_thinking"):
            raise RequestError(f"{where}.type: a {kind!r} block cannot stand here")
        if not isinstance(kind, str):
            raise RequestError(f"{where}.type: {show(kind)} is given, expected 'text', 'image', 'tool_result' …")
        self.unknown.append(f"content block {kind!r}")
        return []

    def _document(self, block: JsonDict, where: str) -> list[JsonDict]:
        source = block.get("source")
        kind = source.get("type") if isinstance(source, dict) else None
        if not isinstance(source, dict) or not isinstance(kind, str):
            raise RequestError(f"{where}.source: {show(source)} is given, expected an object with a type")
        if kind == "text":
            return [{"type": "text", "text": _text(source.get("data"), f"{where}.source.data")}]
        if kind == "content":
            content = self._plain(source.get("content"), f"{where}.source.content")
            return content if isinstance(content, list) else [{"type": "text", "text": content}]
        file: JsonDict = {}
        if isinstance(title := block.get("title"), str):
            file["filename"] = title
        if kind == "base64":
            data = _text(source.get("data"), f"{where}.source.data")
            file["file_data"] = f"data:{source.get('media_type') or 'application/pdf'};base64,{data}"
        elif kind == "url":
            file["file_url"] = _text(source.get("url"), f"{where}.source.url")
        else:
            file["file_id"] = source.get("file_id")
        return [{"type": "file", "file": file}]

    def _assistant(self, content: Any, where: str) -> None:
        if self._goes_on and self.messages:
            message = self.messages[-1]
        else:
            message = {"role": "assistant", "content": ""}
            self.messages.append(message)
        if isinstance(content, str):
            message["content"] += content
            return
        for at, block in enumerate(_blocks(content, where)):
            self._said(message, block, f"{where}.{at}")

    def _said(self, message: Message, block: JsonDict, where: str) -> None:
        kind = block.get("type")
        if kind == "text":
            message["content"] += _text(block.get("text"), f"{where}.text")
        elif kind == "thinking":
            thought = _text(block.get("thinking"), f"{where}.thinking")
            message["reasoning_content"] = message.get("reasoning_content", "") + thought
            if isinstance(signature := block.get("signature"), str) and signature != SIGNATURE:
                kept = {"type": "thinking", "thinking": thought, "signature": signature}
                message.setdefault("thinking_blocks", []).append(kept)
        elif kind == "redacted_thinking":
            kept = {"type": "redacted_thinking", "data": _text(block.get("data"), f"{where}.data")}
            message.setdefault("thinking_blocks", []).append(kept)
        elif kind == "tool_use":
            message.setdefault("tool_calls", []).append(_call(block, where))
        elif isinstance(kind, str):
            self.unknown.append(f"content block {kind!r}")
        else:
            raise RequestError(f"{where}.type: {show(kind)} is given, expected 'text', 'thinking' or 'tool_use'")


def blocks_of(message: Message) -> list[JsonDict]:
    """The content blocks that say `message`; none for an empty one."""
    blocks: list[JsonDict] = []
    if thinking := message.get("thinking_blocks"):
        blocks += thinking
    elif reasoning := message.get("reasoning_content"):
        blocks.append({"type": "thinking", "thinking": reasoning, "signature": SIGNATURE})
    if content := message.get("content"):
        blocks.append({"type": "text", "text": content})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        used = {"type": "tool_use", "id": call["id"], "name": function["name"]}
        blocks.append({**used, "input": arguments_object(function.get("arguments"))})
    return blocks


def signed(message: Message) -> str:
    """The signature of a reasoning that was streamed as one block."""
    blocks: list[JsonDict] = message.get("thinking_blocks") or []
    if len(blocks) == 1 and isinstance(signature := blocks[0].get("signature"), str):
        return signature
    return SIGNATURE


def _call(block: JsonDict, where: str) -> JsonDict:
    name, given = block.get("name"), block.get("input")
    if not isinstance(name, str) or not name:
        raise RequestError(f"{where}.name: {show(name)} is given, expected the name of a tool")
    if not (given is None or isinstance(given, dict)):
        raise RequestError(f"{where}.input: {show(given)} is given, expected an object")
    function = {"name": name, "arguments": arguments_text(given)}
    return {"id": _text(block.get("id"), f"{where}.id"), "type": "function", "function": function}


def _image(source: Any, where: str) -> JsonDict:
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "base64":
        data = _text(source.get("data"), f"{where}.data")
        url = f"data:{_text(source.get('media_type'), f'{where}.media_type')};base64,{data}"
    elif kind == "url":
        url = _text(source.get("url"), f"{where}.url")
    elif kind == "file":
        return {"type": "file", "file": {"file_id": _text(source.get("file_id"), f"{where}.file_id")}}
    else:
        raise RequestError(f"{where}: {show(source)} is given, expected a source of type 'base64' or 'url'")
    return {"type": "image_url", "image_url": {"url": url}}


def _blocks(content: Any, where: str) -> list[JsonDict]:
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise RequestError(f"{where}: {show(content)} is given, expected text or a list of content blocks")
    return content


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{where}: {show(value)} is given, expected text")
    return value


def show(value: Any) -> str:
    """The value for a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
