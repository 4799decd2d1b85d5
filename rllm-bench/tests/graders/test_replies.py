from __future__ import annotations

import json
from pathlib import Path

import pytest

from rllm_bench.graders import last_tagged, marked_answer, without_thinking
from rllm_bench.graders.replies import Marked


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("a<think>b</think>c<think>d</think>e", "ace"),
        ("a</think>b", "b"),
        ("<think>a", ""),
        ("x<think>a", "x"),
        ("<think>a<think>b</think>c</think>d", "d"),
        ("<think>a</think>b</think>c", "c"),
        ("", ""),
    ],
)
def test_thinking_is_removed_also_when_a_tag_is_missing(text: str, kept: str) -> None:
    assert without_thinking(text) == kept


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("<answer> 1+2 </answer>", "1+2"),
        ("<answer>1</answer> or <answer>2</answer>", "2"),
        ("<answer>1</answer> wait <answer>2", "1"),
        ("<answer>x <answer>2</answer>", "2"),
        ("<answer></answer>", ""),
        ("<answer>1", None),
        ("1</answer>", None),
        ("<ANSWER>1</ANSWER>", None),
    ],
)
def test_the_last_complete_tag_counts(text: str, inside: str | None) -> None:
    assert last_tagged(text) == inside


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        (r"\boxed{1} then \boxed{2}", Marked("2")),
        (r"\boxed{\frac{1}{2}}", Marked(r"\frac{1}{2}")),
        (r"\boxed{a\}b}", Marked(r"a\}b")),
        (r"\boxed {5}", Marked("5")),
        (r"\fbox{5}", Marked("5")),
        (r"\boxed{1} \boxed{", Marked(None, cut=True)),
        (r"\boxed{1} \boxed", Marked(None, cut=True)),
        (r"\boxed{1} \boxed 5", Marked(None)),
        ("#### 5", Marked("5")),
        ("#### 5\nmore", Marked("5")),
        ("\\boxed{4}\n#### 5", Marked("5")),
        ("#### 5\n\\boxed{4}", Marked("4")),
        ("\\boxed{4}\n#### Conclusion", Marked("4")),
        ("##### 5", Marked(None)),
        ("nothing", Marked(None)),
    ],
)
def test_the_last_marker_counts_and_a_cut_box_is_no_answer(text: str, marked: Marked) -> None:
    assert marked_answer(text) == marked


def test_boxes_agree_with_the_cases_of_other_projects(datasets: Path) -> None:
    cases = (datasets.parent / "math_grading" / "extraction_cases.jsonl").read_text().splitlines()
    compared = 0
    for case in map(json.loads, cases):
        if case["fn"] == "extract_boxed" and case["expected"] != "<raises>":
            assert marked_answer(case["text"]).answer == case["expected"], case
            compared += 1
        elif case["fn"] == "last_boxed_only_string":
            answer = marked_answer(case["text"]).answer
            assert (None if answer is None else f"\\boxed{{{answer}}}") == case["expected"], case
            compared += 1
    assert compared >= 8
