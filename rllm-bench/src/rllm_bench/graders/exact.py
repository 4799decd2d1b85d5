"""Exact answers in `<answer>` tags: one whole number, or a list of items in order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from rllm.types import Episode, EvalOutput, Task
from rllm_bench.graders.replies import last_tagged, without_thinking
from rllm_bench.graders.verdict import reference, unparsed, verdict

__all__ = ["IntegerGrader", "SequenceGrader", "grade_integer", "grade_sequence"]

MAX_INTEGER_CHARS = 150
MAX_SEQUENCE_CHARS = 2000

_INTEGER = re.compile(r"[-−+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)")
_SEPARATOR = re.compile(r"\s*,\s*|\s+")


def grade_integer(text: str, gold: int) -> EvalOutput:
    """1 if the last complete `<answer>` outside the reasoning is the whole number `gold`, else 0.

    Thousands separators and a sign are read; any other character makes the answer unparsed. Signal: `format`.
    """
    answer = last_tagged(without_thinking(text))
    if answer is None:
        return unparsed(None, "no <answer>…</answer>")
    if len(answer) > MAX_INTEGER_CHARS or not _INTEGER.fullmatch(answer):
        return unparsed(answer[:MAX_INTEGER_CHARS], "not a whole number")
    value = int(answer.replace(",", "").replace("−", "-"))
    return verdict(answer, correct=value == gold)


def grade_sequence(text: str, gold: Sequence[str]) -> EvalOutput:
    """1 if the last complete `<answer>` outside the reasoning lists exactly `gold`, else 0.

    Items are separated by commas or spaces. Signals: `format` (right number of items), `items` (they are the
    right ones, in whatever order), `placed` (the share that stands where it should).
    """
    nothing = {"items": 0.0, "placed": 0.0}
    answer = last_tagged(without_thinking(text))
    if answer is None:
        return unparsed(None, "no <answer>…</answer>", signals=nothing)
    items = _SEPARATOR.split(answer) if len(answer) <= MAX_SEQUENCE_CHARS else []
    if len(items) != len(gold):
        return unparsed(answer[:MAX_SEQUENCE_CHARS], f"not a list of {len(gold)} items", signals=nothing)
    placed = sum(item == wanted for item, wanted in zip(items, gold, strict=True)) / len(gold)
    signals = {"items": float(Counter(items) == Counter(gold)), "placed": placed}
    return verdict(answer, correct=placed == 1, signals=signals)


class IntegerGrader:
    """Reads `answer`, a whole number as text, from the task's reference."""

    def grade(self, task: Task, episode: Episode) -> EvalOutput:
        """See `grade_integer`."""
        return grade_integer(episode.final_text(), int(reference(task, "answer")))


class SequenceGrader:
    """Reads `items`, a list of texts, from the task's reference."""

    def grade(self, task: Task, episode: Episode) -> EvalOutput:
        """See `grade_sequence`."""
        return grade_sequence(episode.final_text(), reference(task, "items"))
