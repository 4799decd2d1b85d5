"""A reply's text taken apart: reasoning, content and tool calls, at once or while it is being sampled.

What is streamed is always a beginning of what the complete reply says: text that a later token could turn into
markup, a stop string or another character is held back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rllm.gateway.rendering.toolcalls import OPEN, parse_tool_calls
from rllm.types import JsonDict, Message

__all__ = ["TextStream", "cut_at_stop", "read_reply"]

THINK, END_THINK = "<think>", "</think>"


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string in it."""
    found = [at for each in stop if (at := text.find(each)) >= 0]
    return text[: min(found)] if found else text


def read_reply(text: str, *, thinking: bool, tools: bool, stop: Sequence[str] = ()) -> Message:
    """The message that a reply's text means. `thinking` says that the prompt had opened a `<think>` already."""
    reasoning, content = _split(cut_at_stop(text, stop), thinking=thinking)
    calls: list[JsonDict] = []
    if tools:
        content, calls = parse_tool_calls(content)
    message: Message = {"role": "assistant", "content": content}
    if calls:
        message["content"] = content or None
        message["tool_calls"] = calls
    if reasoning:
        message["reasoning_content"] = reasoning
    return message


def _split(text: str, *, thinking: bool) -> tuple[str, str]:
    """Reasoning and content; reasoning that never ends is all there is."""
    if not thinking:
        inner = text.lstrip()
        if not inner.startswith(THINK):
            return "", text
        text = inner[len(THINK) :]
    head, _, rest = text.partition(END_THINK)
    return head.strip("\n"), rest.lstrip("\n")


class TextStream:
    """`ReplyStream` over text: decodes in a sliding window and gives out what is final."""

    def __init__(
        self,
        decode: Callable[[NDArray[np.int32]], str],
        *,
        thinking: bool,
        tools: bool,
        stop: Sequence[str] = (),
    ) -> None:
        self._decode = decode
        self._thinking = thinking
        self._tools = tools
        self._stop = tuple(stop)
        self._ids = np.zeros(0, np.int32)
        """The window: the last ids that are out as text, then those that are not."""
        self._shown = 0
        """How many of them are out."""
        self._text = ""
        self._given = ["", ""]

    def feed(self, ids: NDArray[np.int32]) -> tuple[str, str]:
        self._append(ids)
        pieces = []
        for place, final in enumerate(self._final()):
            given = self._given[place]
            piece = final[len(given) :] if final.startswith(given) else ""
            self._given[place] = given + piece
            pieces.append(piece)
        return pieces[0], pieces[1]

    def _append(self, ids: NDArray[np.int32]) -> None:
        """Decode what is new beside the ids before it, so that spaces and merged bytes come out as in the whole."""
        self._ids = np.concatenate([self._ids, ids])
        before = self._decode(self._ids[: self._shown])
        after = self._decode(self._ids)
        if len(after) > len(before) and not after.endswith("\ufffd"):
            self._text += after[len(before) :]
            self._ids = self._ids[self._shown :]
            self._shown = self._ids.size

    def _final(self) -> tuple[str, str]:
        text = cut_at_stop(self._text, self._stop)
        if text is self._text or len(text) == len(self._text):
            text = _hold(text, self._stop)
        if not self._thinking:
            inner = text.lstrip()
            if THINK.startswith(inner[: len(THINK)]) and len(inner) < len(THINK):
                return "", ""
            if not inner.startswith(THINK):
                return "", self._content(text)
        elif not text:
            return "", ""
        reasoning, content = _split(text, thinking=self._thinking)
        if END_THINK not in text:
            return _hold(reasoning, (END_THINK,)).rstrip("\n"), ""
        return reasoning, self._content(content)

    def _content(self, text: str) -> str:
        if self._tools:
            at = text.find(OPEN)
            text = text[:at] if at >= 0 else _hold(text, (OPEN,))
            text = text.rstrip()
        return text


def _hold(text: str, marks: Sequence[str]) -> str:
    """`text` without the longest end of it that may be the beginning of one of `marks`."""
    held = 0
    for mark in marks:
        for size in range(min(len(mark) - 1, len(text)), held, -1):
            if text.endswith(mark[:size]):
                held = size
                break
    return text[: len(text) - held]
