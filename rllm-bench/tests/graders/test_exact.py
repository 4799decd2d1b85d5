from __future__ import annotations

import pytest

from rllm.types import Episode, Task
from rllm_bench.graders import IntegerGrader, SequenceGrader, grade_integer, grade_sequence


@pytest.mark.parametrize("answer", ["-1234", "-1,234", "−1234", " -1234 "])
def test_a_whole_number_may_be_written_with_separators(answer: str) -> None:
    assert grade_integer(f"<answer>{answer}</answer>", -1234).is_correct


@pytest.mark.parametrize(
    "answer",
    [
        "1234",
        "-1234.0",
        "- 1234",
        "-1,23,4",
        "-1234 or 5",
        "--1234",
        "-12_34",
        "-１２３４",
        "",
        "9" * 5000,
        "5",
    ],
)
def test_anything_else_is_no_such_number(answer: str) -> None:
    assert grade_integer(f"<answer>{answer}</answer>", -1234).reward == 0.0


def signals(text: str) -> dict[str, float]:
    output = grade_sequence(text, ["a", "b", "b", "c"])
    return {"reward": output.reward} | {signal.name: signal.value for signal in output.signals}


def test_a_list_scores_only_when_all_of_it_is_right() -> None:
    for text, expected in (
        ("<answer>a, b, b, c</answer>", (1, 1, 1, 1)),
        ("<answer>a b\nb,c</answer>", (1, 1, 1, 1)),
        ("<answer>b, a, b, c</answer>", (0, 1, 1, 0.5)),
        ("<answer>a, b, c, c</answer>", (0, 1, 0, 0.75)),
        ("<answer>a, b, c</answer>", (0, 0, 0, 0)),
        ("<answer>a, b, b, c,</answer>", (0, 0, 0, 0)),
        ("<answer></answer>", (0, 0, 0, 0)),
        ("a, b, b, c", (0, 0, 0, 0)),
        ("<answer>" + "a " * 5000 + "</answer>", (0, 0, 0, 0)),
    ):
        found = signals(text)
        assert (found["reward"], found["format"], found["items"], found["placed"]) == expected


def test_the_graders_read_the_reference_of_the_task() -> None:
    number = Task(id="n", instruction="", reference={"answer": "7"})
    assert IntegerGrader().grade(number, Episode(artifacts={"answer": "<answer>7</answer>"})).is_correct
    listed = Task(id="s", instruction="", reference={"items": ["a", "b"]})
    assert SequenceGrader().grade(listed, Episode(artifacts={"answer": "<answer>a b</answer>"})).is_correct
