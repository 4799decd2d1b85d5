"""Finding the final answer in a reply. Every function is linear in the text; what the answer means is not its
concern."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Marked", "last_tagged", "marked_answer", "without_thinking"]

_THINK = re.compile(r"<think>|</think>")
_MARKER = re.compile(r"\\(?:boxed|fbox)\b|(?<!#)####(?!#)[^\n]*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Marked:
    """What the last `\\boxed{…}` or `####` of a reply holds."""

    answer: str | None
    """None when there is no marker, or when the last one is a box that never closes."""
    cut: bool = False
    """The reply ends inside a box."""


def without_thinking(text: str) -> str:
    """The text outside `<think>…</think>`.

    An unclosed `<think>` hides the rest; a `</think>` without its opening hides what precedes it, because
    chat templates may put the opening tag into the prompt. A text without these tags is returned whole.
    """
    kept: list[str] = []
    start: int | None = 0
    for tag in _THINK.finditer(text):
        if tag.group() == "</think>":
            if start is not None:
                kept.clear()
            start = tag.end()
        elif start is not None:
            kept.append(text[start : tag.start()])
            start = None
    if start is not None:
        kept.append(text[start:])
    return "".join(kept)


def last_tagged(text: str, tag: str = "answer") -> str | None:
    """What stands in the last complete `<tag>…</tag>`, stripped; None if there is none."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    end = text.rfind(closing)
    start = text.rfind(opening, 0, end) if end >= 0 else -1
    return text[start + len(opening) : end].strip() if start >= 0 else None


def marked_answer(text: str) -> Marked:
    """What the last answer marker holds: the inside of `\\boxed{…}` or `\\fbox{…}`, or a line after `####`.

    A `####` line without a digit is a heading and no marker. A box that never closes is not replaced by an
    earlier one: a reply that was cut has no final answer.
    """
    last: re.Match[str] | None = None
    for marker in _MARKER.finditer(text):
        if marker.group().startswith("\\") or any(each in "0123456789" for each in marker.group()):
            last = marker
    if last is None:
        return Marked(None)
    if last.group().startswith("#"):
        return Marked(last.group().removeprefix("####").strip())
    return _boxed(text, last.end())


def _boxed(text: str, start: int) -> Marked:
    opening = len(text) - len(text[start:].lstrip())
    if not text.startswith("{", opening):
        return Marked(None, cut=opening == len(text))
    depth = 0
    for brace in _BRACE.finditer(text, opening):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return Marked(text[opening + 1 : brace.start()].strip())
    return Marked(None, cut=True)
