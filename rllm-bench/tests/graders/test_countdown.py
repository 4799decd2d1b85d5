from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from rllm.errors import DataError
from rllm.types import Episode, Task
from rllm_bench.graders import CountdownGrader, grade_countdown


def reward(answer: str) -> float:
    return grade_countdown(f"<answer>{answer}</answer>", [3, 5, 7], 26).reward


@pytest.mark.parametrize("answer", ["3*7+5", "5 + (7 * 3)", "5+7×3", "-(-5-7*3)", "(((5)))+7*3", "\n5+7*3\n"])
def test_expressions_of_the_numbers_that_make_the_target_score(answer: str) -> None:
    assert reward(answer) == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        "3*7+5+0", "21+5", "26", "3*7", "3*7+5=26", "3*7+5 is 26", "37-11", "3*5+7", "`3*7+5`",
        "3*7+5.0", "3*7+05", "3*7+5 #", "7*3+5 if 1 else 0", "__import__('os').system('true')",
        "3**7+5", "(3*7+5", "3*7++5", "",
    ],
)  # fmt: skip
def test_everything_else_scores_nothing(answer: str) -> None:
    assert reward(answer) == 0.0


def test_the_verdict_says_what_was_read_and_why_it_failed() -> None:
    for text, status, reason, signals in (
        ("<answer>3*7+5</answer>", "ok", None, {"format": 1, "numbers": 1}),
        ("<answer>3*5+7</answer>", "ok", "makes 22", {"format": 1, "numbers": 1}),
        ("<answer>26</answer>", "ok", "wrong numbers", {"format": 1, "numbers": 0}),
        ("<answer>3*</answer>", "unparsed", "it ends too early", {"format": 0, "numbers": 0}),
        ("3*7+5", "unparsed", "no <answer>…</answer>", {"format": 0, "numbers": 0}),
    ):
        output = grade_countdown(text, [3, 5, 7], 26)
        assert (output.metadata["status"], output.metadata.get("reason")) == (status, reason)
        assert {signal.name: signal.value for signal in output.signals} == signals
        assert output.is_correct == (output.reward == 1.0)


def test_an_answer_inside_the_reasoning_does_not_count() -> None:
    assert grade_countdown("<think><answer>3*7+5</answer></think>", [3, 5, 7], 26).reward == 0
    assert grade_countdown("<think>no</think><answer>3*7+5</answer>", [3, 5, 7], 26).reward == 1


def test_verdicts_agree_with_recorded_ones_except_for_typographic_operators(datasets: Path) -> None:
    """Real replies of three models. The recorded checker refuses `×`, `÷` and `−`; we read them."""
    verdicts: Counter[tuple[bool, bool, bool]] = Counter()
    for line in (datasets / "countdown_300.jsonl").read_text().splitlines():
        row = json.loads(line)
        gold = grade_countdown(f"<answer>{row['gold_expr']}</answer>", row["numbers"], row["target"])
        assert gold.is_correct
        for recorded in (row.get("recorded_eval") or {}).values():
            output = grade_countdown(recorded["raw_generation"], row["numbers"], row["target"])
            assert (output.metadata["extracted"] is not None) == recorded["format_ok"]
            aliases = any(each in (output.metadata["extracted"] or "") for each in "×÷−")
            verdicts[recorded["correct"], output.is_correct, aliases] += 1
    agree = sum(count for (theirs, ours, _), count in verdicts.items() if theirs == ours)
    assert sum(verdicts.values()) == 300
    assert agree == 279
    assert verdicts[False, True, True] == 21


def test_a_task_without_its_reference_cannot_be_graded() -> None:
    with pytest.raises(DataError, match="task 't' has no 'numbers' in its reference"):
        CountdownGrader().grade(Task(id="t", instruction="i"), Episode())
