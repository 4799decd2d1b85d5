"""Imperfect demonstrations on which the embedded model is warm-started.

Small countdown problems in the words of the `countdown` benchmark. The teacher has a bad habit: more often than not it
subtracts the numbers as they are written. So the model starts out speaking well and mostly wrong, and what it saw of
right answers is what reinforcement learning can build on. Held-out problems of the benchmark are left out.

Nothing here imports the benchmark package; a whole-system test holds the two texts and splits together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from rllm.ids import derive_seed

__all__ = [
    "PHRASES",
    "Demonstration",
    "Problem",
    "demonstrations",
    "held_out",
    "instruction",
    "problems",
    "reply",
    "solutions",
]

_TEST_SHARE = 5

_OPENING = "Use each of the numbers "
_MIDDLE = " exactly once with +, -, *, / and parentheses to make "
_CLOSING = ". Give the expression in <answer> tags."

PHRASES = (_OPENING, _MIDDLE, _CLOSING, "<answer>", "</answer>", ", ")
"""The fixed parts of a prompt and of a reply, each of which the tokenizer holds as one token."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Two numbers and the integer to make from them."""

    numbers: tuple[int, int]
    target: int


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One exchange: what the user says and what the assistant answers."""

    prompt: str
    answer: str


def instruction(numbers: tuple[int, ...], target: int) -> str:
    """The user's message, word for word that of the `countdown` benchmark."""
    return f"{_OPENING}{', '.join(map(str, numbers))}{_MIDDLE}{target}{_CLOSING}"


def reply(expression: str) -> str:
    """The assistant's message for `expression`."""
    return f"<answer>{expression}</answer>"


def _value(left: int, operator: str, right: int) -> int | None:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left // right if right and left % right == 0 else None


def solutions(problem: Problem) -> list[str]:
    """Every expression of two numbers that makes the target, in a fixed order."""
    pairs = sorted(set(permutations(problem.numbers)))
    return [f"{a}{o}{b}" for a, b in pairs for o in "+-*/" if _value(a, o, b) == problem.target]


def held_out(problem: Problem) -> bool:
    """Whether the `countdown` benchmark keeps this problem for its test split."""
    low, high = sorted(problem.numbers)
    return derive_seed("rllm-bench split", f"countdown-{low}-{high}-{problem.target}") % _TEST_SHARE == 0


def problems(*, max_number: int, max_target: int) -> list[Problem]:
    """Every problem of two numbers that is not held out, in a fixed order, the smaller number first."""
    found = []
    for low in range(1, max_number + 1):
        for high in range(low, max_number + 1):
            pairs = ((low, high), (high, low))
            targets = {_value(a, operator, b) for a, b in pairs for operator in "+-*/"}
            for target in sorted(t for t in targets if t is not None and 0 < t <= max_target):
                found.append(Problem((low, high), target))
    return [problem for problem in found if not held_out(problem)]


def demonstrations(
    rng: np.random.Generator, *, max_number: int, max_target: int, correct: float
) -> Iterator[Demonstration]:
    """Endless demonstrations; a fraction `correct` of them solves the problem, the rest follows the habit."""
    every = problems(max_number=max_number, max_target=max_target)
    while True:
        chosen = every[rng.integers(len(every))]
        low, high = chosen.numbers
        shown = Problem((low, high) if rng.random() < 0.5 else (high, low), chosen.target)
        if rng.random() < correct:
            found = solutions(shown)
            expression = found[rng.integers(len(found))]
        else:
            expression = f"{shown.numbers[0]}-{shown.numbers[1]}"
        yield Demonstration(instruction(shown.numbers, shown.target), reply(expression))
