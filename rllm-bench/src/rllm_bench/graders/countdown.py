"""Grading countdown: the expression must use exactly the given numbers and make the target.

The answer is an expression and not an equation: `3*5 = 15` is refused, as TinyZero's and other published
graders do, so that scores can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from rllm.types import Episode, EvalOutput, Task
from rllm_bench.graders.expression import ExpressionError, parse_expression
from rllm_bench.graders.replies import last_tagged, without_thinking
from rllm_bench.graders.verdict import reference, unparsed, verdict

__all__ = ["CountdownGrader", "grade_countdown"]


def grade_countdown(text: str, numbers: Sequence[int], target: int) -> EvalOutput:
    """1 if the last complete `<answer>` outside the reasoning makes `target` from exactly `numbers`, else 0.

    Signals: `format` (an expression was given), `numbers` (it uses the right numbers).
    """
    answer = last_tagged(without_thinking(text))
    if answer is None:
        return unparsed(None, "no <answer>…</answer>", signals={"numbers": 0.0})
    try:
        expression = parse_expression(answer)
    except ExpressionError as error:
        return unparsed(answer, str(error), signals={"numbers": 0.0})
    if sorted(expression.literals) != sorted(numbers):
        return verdict(answer, correct=False, reason="wrong numbers", signals={"numbers": 0.0})
    correct = expression.value == target
    reason = "" if correct else f"makes {expression.value}"
    return verdict(answer, correct=correct, reason=reason, signals={"numbers": 1.0})


class CountdownGrader:
    """Reads `numbers` and `target` from the task's reference."""

    def grade(self, task: Task, episode: Episode) -> EvalOutput:
        """See `grade_countdown`."""
        return grade_countdown(episode.final_text(), reference(task, "numbers"), reference(task, "target"))
