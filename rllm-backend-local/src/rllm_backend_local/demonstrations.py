"""Imperfect demonstrations on which the embedded model is warm-started.

Small countdown problems in the words of the `countdown` benchmark. Most answers are format only: the right
numbers with a random operator, so the model learns to speak and is left to learn arithmetic by itself. Nothing
here knows the benchmark package; a whole-system test holds the two texts together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

__all__ = ["PHRASES", "Demonstration", "Problem", "demonstrations", "instruction", "problems", "reply"]

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

    @property
    def key(self) -> tuple[int, ...]:
        """Equal for problems that differ in the order of the numbers only."""
        return (*sorted(self.numbers), self.target)


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


def problems(rng: np.random.Generator, *, max_number: int, max_target: int) -> Iterator[Problem]:
    """Endless solvable problems: uniform numbers, and the value of a random expression as the target."""
    while True:
        a, b = (int(n) for n in rng.integers(1, max_number + 1, 2))
        target = _value(a, "+-*/"[rng.integers(4)], b)
        if target is not None and 0 <= target <= max_target:
            yield Problem((a, b) if rng.random() < 0.5 else (b, a), target)


def demonstrations(
    rng: np.random.Generator, *, max_number: int, max_target: int, correct: float
) -> Iterator[Demonstration]:
    """Endless demonstrations; a fraction `correct` of them solves the problem, the rest only looks like it."""
    for problem in problems(rng, max_number=max_number, max_target=max_target):
        if rng.random() < correct:
            found = solutions(problem)
            expression = found[rng.integers(len(found))]
        else:
            a, b = problem.numbers if rng.random() < 0.5 else problem.numbers[::-1]
            expression = f"{a}{'+-*/'[rng.integers(4)]}{b}"
        yield Demonstration(instruction(problem.numbers, problem.target), reply(expression))
