from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from rllm.errors import DataError
from rllm.types import Episode, EvalOutput, Task
from rllm_bench.graders import NumericGrader, grade_numeric, parse_number


def flexible(output: EvalOutput) -> float:
    return {signal.name: signal.value for signal in output.signals}["flexible"]


@pytest.mark.parametrize(
    ("gold", "text", "correct"),
    [
        ("18", r"\boxed{$18}", True),
        ("18", r"\boxed{\$18}", True),
        ("18", "#### 18 dollars", True),
        ("42", r"I get \boxed{42}. Wait, finally \boxed{", False),
        ("42", r"\fbox{42}", True),
        ("70", r"<answer> \boxed{70}\).</answer>", True),
        ("29", "#### $29.00.", True),
        ("-3", "5, 6 and 3\n#### -3", True),
        ("3", "#### -3", False),
        ("70000", r"\boxed{\$70{,}000}", True),
        ("7", r"<think>\boxed{5}</think> \boxed{7}", True),
        ("7", r"<think>\boxed{7}</think> \boxed{5}", False),
        ("7", r"<think>\boxed{7}", False),
        ("5", r"The answer is \boxed{5}", True),
        ("840", r"\boxed{840}., but … **Final Answer** \boxed{840}", True),
        ("4", r"\boxed{35 cm} … \boxed{4}", True),
        ("3", r"\boxed{\dfrac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}}", False),
        ("17", "17", False),
        ("17", r"\boxed{17 or 18}", False),
    ],
)
def test_marked_answers_are_compared_as_numbers(gold: str, text: str, correct: bool) -> None:
    assert grade_numeric(text, Fraction(gold)).is_correct is correct


def test_an_unmarked_last_number_counts_only_in_the_flexible_signal() -> None:
    output = grade_numeric("<think>3*8=24, +48=72</think> The answer is 72.", Fraction(72))
    assert (output.reward, flexible(output), output.metadata["status"]) == (0.0, 1.0, "unparsed")
    cut = grade_numeric(r"I get \boxed{42}. Wait, finally \boxed{", Fraction(42))
    assert (cut.reward, flexible(cut), cut.metadata["reason"]) == (0.0, 0.0, "cut inside a box")


def test_verdicts_agree_with_the_recorded_ones_of_four_models(datasets: Path) -> None:
    """The models end with `A: N`: the strict reading is of the same text with `#### N`."""
    compared = 0
    for line in (datasets / "gsm8k_example_model_solutions_150.jsonl").read_text().splitlines():
        row = json.loads(line)
        gold = parse_number(row["ground_truth"].rpartition("A: ")[2])
        assert gold is not None
        for model in ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"):
            solution, correct = row[model]["solution"], row[model]["is_correct"]
            assert bool(flexible(grade_numeric(solution, gold))) == correct
            assert grade_numeric(re.sub(r"(?m)^A: ", "#### ", solution), gold).is_correct == correct
            compared += 1
    assert compared == 400


def test_a_reference_that_is_no_number_cannot_be_graded() -> None:
    grader = NumericGrader()
    assert grader.grade(
        Task(id="t", instruction="", reference={"answer": "1,000"}),
        Episode(artifacts={"answer": "#### 1000"}),
    ).is_correct
    with pytest.raises(DataError, match="'many'"):
        grader.grade(Task(id="t", instruction="", reference={"answer": "many"}), Episode())
