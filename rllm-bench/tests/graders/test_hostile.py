"""Whatever a model writes, every grader answers quickly with a finite reward and runs nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllm.types import EvalOutput
from rllm_bench.graders import grade_countdown, grade_integer, grade_numeric, grade_sequence

GRADERS: dict[str, Callable[[str], EvalOutput]] = {
    "countdown": lambda text: grade_countdown(text, [3, 5], 1_000_003),
    "integer": lambda text: grade_integer(text, 1_000_003),
    "numeric": lambda text: grade_numeric(text, Fraction(1_000_003)),
    "sequence": lambda text: grade_sequence(text, ["q", "z"]),
}
FRAGMENTS = [
    "<think>", "</think>", "<answer>", "</answer>", "\\boxed{", "\\fbox{", "}", "{", "\\", "####",
    "\n", "$", ",", ".", "-", "−", "+", "*", "/", "(", ")", "=", "%", "\\frac{", "\\text{",
    "\\left", "1", "0", "٣", "²", "e9", " ", "\x00", "\ud800", "\U0001f600", "**", "//",
]  # fmt: skip
BOMBS = [
    "9**9**9**9", "9^9^9^9", "(" * 10_000 + "1" + ")" * 10_000, "-" * 100_000 + "1", "9" * 100_000,
    "1/" * 50_000 + "1", "__import__('os').system('touch /tmp/pwned')", "exec('1')", "lambda: 0",
    "[x for x in (1,)]", "1e999999999", "1_000_003", "１００００３", "1,000,003" * 20_000,
    "\\text{" * 50_000, "\\frac{" * 50_000, "{" * 100_000, "$" * 100_000, " " * 100_000, "1 " * 100_000,
    "1," * 100_000, "." * 100_000, "#" * 100_000, "\\" * 99_999, "\x00" * 1000, "\ud800",
]  # fmt: skip
WRAPPERS = [
    "{}",
    "<answer>{}</answer>",
    "\\boxed{{{}}}",
    "#### {}",
    "<think>{}",
    "<answer>{}",
    "\\boxed{{{}",
    "{}</think>",
]


@pytest.mark.parametrize("grader", GRADERS.values(), ids=GRADERS)
@settings(deadline=None, max_examples=300)
@given(st.one_of(st.text(), st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join)))
def test_no_text_makes_a_grader_raise(grader: Callable[[str], EvalOutput], text: str) -> None:
    for wrapper in WRAPPERS[:4]:
        output = grader(wrapper.format(text))
        assert math.isfinite(output.reward)
        assert output.is_correct == (output.reward == 1.0)


@pytest.mark.parametrize("grader", GRADERS.values(), ids=GRADERS)
def test_tricks_and_bombs_score_nothing_at_once(grader: Callable[[str], EvalOutput]) -> None:
    for bomb in BOMBS:
        for wrapper in WRAPPERS:
            started = time.perf_counter()
            assert grader(wrapper.format(bomb)).reward == 0.0
            assert time.perf_counter() - started < 2.0


@pytest.mark.parametrize("tag", ["<think>", "<answer>", "</answer>", "\\boxed{", "####", "<think></think>", "</think>"])
@pytest.mark.parametrize("grader", GRADERS.values(), ids=GRADERS)
def test_a_million_characters_of_tags_take_linear_time(grader: Callable[[str], EvalOutput], tag: str) -> None:
    started = time.perf_counter()
    assert grader(tag * (1_000_000 // len(tag))).reward == 0.0
    assert time.perf_counter() - started < 5.0
