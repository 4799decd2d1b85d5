"""Numeric answers in a `\\boxed{…}` or after `####`, compared exactly; for GSM8K and its kind."""

from __future__ import annotations

from fractions import Fraction

from rllm.errors import DataError
from rllm.types import Episode, EvalOutput, Task
from rllm_bench.graders.numbers import last_number, parse_number
from rllm_bench.graders.replies import marked_answer, without_thinking
from rllm_bench.graders.verdict import reference, unparsed, verdict

__all__ = ["NumericGrader", "grade_numeric"]


def grade_numeric(text: str, gold: Fraction | int | str) -> EvalOutput:
    """1 if the last marked answer outside the reasoning equals `gold`, else 0.

    The signal `flexible` is 1 when the last number of the reply equals `gold`, marked or not; it stays 0 for a
    reply that was cut inside a box. `format` tells whether a marked number was found. Raises `DataError` when
    `gold` is not one number.
    """
    wanted = parse_number(gold) if isinstance(gold, str) else Fraction(gold)
    if wanted is None:
        raise DataError(f"the gold answer {gold!r} is not one number")
    final = without_thinking(text)
    marked = marked_answer(final)
    flexible = {"flexible": 0.0 if marked.cut else float(last_number(final) == wanted)}
    if marked.answer is None:
        reason = "cut inside a box" if marked.cut else "no \\boxed{…} and no ####"
        return unparsed(None, reason, signals=flexible)
    value = parse_number(marked.answer)
    if value is None:
        return unparsed(marked.answer, "not one number", signals=flexible)
    return verdict(marked.answer, correct=value == wanted, signals=flexible)


class NumericGrader:
    """Reads `answer`, a number or its text, from the task's reference."""

    def grade(self, task: Task, episode: Episode) -> EvalOutput:
        """See `grade_numeric`."""
        return grade_numeric(episode.final_text(), reference(task, "answer"))
