"""A renderer made of a tokenizer and a chat template, with a bridge that is verified call by call.

The bridge never re-renders what was sampled. It renders the conversation with a marker in place of the last reply
and takes the text after the marker: how the template ends the turn, the new messages and the generation prompt, in
their real context. The sampled ids stay as they are, so it does not matter that a template drops earlier reasoning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllm.errors import RequestError
from rllm.gateway.rendering.jinja import ChatTemplate
from rllm.gateway.rendering.normal import for_template
from rllm.gateway.rendering.renderer import Extension, Turn
from rllm.gateway.rendering.replytext import TextStream, read_reply
from rllm.gateway.rendering.tokens import TextTokenizer
from rllm.types import JsonDict, Message

__all__ = ["TemplateRenderer"]

_MARK = "RLLMq7Seam4xMark"
"""Stands for a reply's text; letters and digits, which no template changes."""
_MARKUP = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""Kept in a reply's text even where the tokenizer calls them special."""
_USER: Message = {"role": "user", "content": "RLLMq7Probe"}
_PROBE_CALL: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": {"a": "b"}}},
    ],
}


class TemplateRenderer:
    """Renders with the model's own template."""

    def __init__(self, tokenizer: TextTokenizer, template: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._arguments_as_text = False
        """Whether the template wants tool arguments as JSON text rather than as a mapping."""
        self._content_as_blocks = False
        """Whether the template wants content as a list of blocks, as those of vision models do."""
        self._content_as_blocks = self._wants_blocks()
        self._tail = self._closing()
        self._arguments_as_text = self._wants_text_arguments()
        self._stop_ids = self._find_stop_ids()
        self._thinking = self._opens_thinking()
        keep = {id for mark in _MARKUP if (id := tokenizer.id(mark)) is not None}
        self._hidden = frozenset(tokenizer.special) - keep

    @classmethod
    def load(cls, tokenizer: TextTokenizer) -> TemplateRenderer:
        """Raises `ModelError` when the directory has no usable chat template."""
        return cls(tokenizer, ChatTemplate.load(tokenizer))

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return self._stop_ids

    def render(self, messages: Sequence[Message], tools: list[JsonDict] | None) -> NDArray[np.int32]:
        ids = self._tokenizer.encode(self._text(messages, tools, generation_prompt=True))
        if not ids.size:
            raise RequestError("the model's chat template makes an empty prompt of these messages")
        return ids

    def encode(self, prompt: str | Sequence[int]) -> NDArray[np.int32]:
        return self._tokenizer.encode(prompt) if isinstance(prompt, str) else self._tokenizer.known(prompt)

    def decode(self, ids: Sequence[int] | NDArray[np.int32]) -> str:
        return self._tokenizer.decode(ids)

    def parse(
        self,
        response_ids: NDArray[np.int32],
        *,
        prompt_ids: NDArray[np.int32],
        tools: list[JsonDict] | None,
        stop: Sequence[str] = (),
    ) -> Message:
        text = self._visible(response_ids)
        return read_reply(text, thinking=self._thinking, tools=bool(tools), stop=stop)

    def stream(
        self, *, prompt_ids: NDArray[np.int32], tools: list[JsonDict] | None, stop: Sequence[str] = ()
    ) -> TextStream:
        return TextStream(self._visible, thinking=self._thinking, tools=bool(tools), stop=stop)

    def extend(self, turn: Turn) -> Extension | None:
        last = int(turn.response_ids[-1]) if turn.response_ids.size else -1
        end = self._tokenizer.decode([last]) if last in self._stop_ids else ""
        try:
            after = self._after_reply(turn, end)
        except RequestError:
            return None
        if after is None:
            return None
        text, closed = after
        ids = self._encode_after(end, text)
        return None if ids is None else Extension(ids, closed)

    def _after_reply(self, turn: Turn, end: str) -> tuple[str, bool] | None:
        """Text that follows the sampled ids, and whether it has to end their turn; None when it cannot be told."""
        reply = turn.history[-1]
        marked = [*turn.history[:-1], {**reply, "content": _MARK}]
        for name in ("reasoning_content", "reasoning"):
            marked[-1].pop(name, None)
        full = self._text([*marked, *turn.new_messages], turn.tools, generation_prompt=True)
        nth = 1 + _marks(turn.history[:-1])
        if not reply.get("tool_calls"):
            after, tail = _after_mark(full, nth), self._tail
        else:
            after, tail = self._after_calls(marked, turn.tools, full, nth, end)
        if not after or not after.startswith(tail):
            return None
        if end and 0 <= (at := after.find(end)) <= len(tail):
            return after[at + len(end) :], False
        return after, bool(tail)

    def _after_calls(
        self, marked: list[Message], tools: list[JsonDict] | None, full: str, nth: int, end: str
    ) -> tuple[str | None, str]:
        """What follows a reply's tool calls in `full`, and how much of it closes the turn."""
        whole = self._text(marked, tools, generation_prompt=False)
        if not full.startswith(whole):
            whole, full = (_after_mark(each, nth) or "" for each in (whole, full))
            if not whole or not full.startswith(whole):
                return None, ""
        tail = _closing_of(whole, self._tail, end)
        return (None, "") if tail is None else (tail + full[len(whole) :], tail)

    def _encode_after(self, end: str, text: str) -> NDArray[np.int32] | None:
        """Ids of `text` as it stands after the sampled ids; None unless they decode to it again."""
        if end:
            ids = self._tokenizer.encode(end + text)
            if not ids.size or int(ids[0]) != self._tokenizer.id(end):
                return None
            ids = ids[1:]
        else:
            ids = self._tokenizer.encode(text)
        return ids if self._tokenizer.decode(ids) == text else None

    def _visible(self, ids: NDArray[np.int32]) -> str:
        """A reply's text without the tokens that end it or that only structure prompts."""
        hidden = self._hidden
        return self._tokenizer.decode([id for id in ids.tolist() if id not in hidden])

    def _text(self, messages: Sequence[Message], tools: list[JsonDict] | None, *, generation_prompt: bool) -> str:
        normal = for_template(
            messages, arguments_as_text=self._arguments_as_text, content_as_blocks=self._content_as_blocks
        )
        return self._template.render(normal, tools, generation_prompt=generation_prompt)

    def _probe(self, messages: Sequence[Message], tools: Any = None, *, generation_prompt: bool = False) -> str | None:
        try:
            return self._text(messages, tools, generation_prompt=generation_prompt)
        except RequestError:
            return None

    def _closing(self) -> str:
        """What the template writes after an assistant's text, whether or not it is the last; empty when it cannot
        be told."""
        turns = [_USER, {"role": "assistant", "content": _MARK}]
        last = self._probe(turns)
        followed = self._probe([*turns, _USER], generation_prompt=True)
        if last is None or followed is None:
            return ""
        return _common(last.rpartition(_MARK)[2], followed.rpartition(_MARK)[2])

    def _wants_blocks(self) -> bool:
        if (text := self._probe([_USER])) is None or _USER["content"] in text:
            return False
        self._content_as_blocks = True
        return _USER["content"] in (self._probe([_USER]) or "")

    def _wants_text_arguments(self) -> bool:
        conversation = [_USER, _PROBE_CALL, {"role": "tool", "content": "x", "tool_call_id": "call00000"}]
        if self._probe(conversation) is not None:
            return False
        self._arguments_as_text = True
        return self._probe(conversation) is not None

    def _find_stop_ids(self) -> tuple[int, ...]:
        found = self._tokenizer.eos_ids()
        head = self._tail.lstrip()
        for id, token in self._tokenizer.special.items():
            if head.startswith(token) and id not in found:
                found.append(id)
        return tuple(found)

    def _opens_thinking(self) -> bool:
        with_prompt = self._probe([_USER], generation_prompt=True)
        return with_prompt is not None and with_prompt.rstrip().endswith("<think>")


def _common(one: str, other: str) -> str:
    """The beginning that both have."""
    size = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:size]


def _marks(messages: Sequence[Message]) -> int:
    return sum(str(message.get("content")).count(_MARK) for message in messages)


def _after_mark(text: str, nth: int) -> str | None:
    """What follows the `nth` marker."""
    parts = text.split(_MARK, nth)
    return parts[nth] if len(parts) > nth else None


def _closing_of(whole: str, tail: str, end: str) -> str | None:
    """The end of `whole` that closes its last turn: the usual one, or from the token that ended it."""
    if whole.endswith(tail):
        return tail
    if end and (at := whole.rfind(end)) >= 0 and not whole[at + len(end) :].strip():
        return whole[at:]
    return None
