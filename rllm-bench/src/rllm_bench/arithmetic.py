"""Arithmetic on whole numbers of a given length: one exact answer, which may be negative or long."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from rllm.interfaces.grader import Grader
from rllm.types import Task
from rllm_bench.graders.exact import IntegerGrader
from rllm_bench.procedural import Space, check_options, choose, fault_unless_between

__all__ = ["Arithmetic", "Problem"]

OPERATORS = "+-*"
LISTABLE_PROBLEMS = 50_000
MAX_DIGITS = 40


class Problem(NamedTuple):
    """`left operator right`."""

    left: int
    operator: str
    right: int

    @property
    def value(self) -> int:
        """The exact result."""
        if self.operator == "+":
            return self.left + self.right
        if self.operator == "-":
            return self.left - self.right
        return self.left * self.right


class Arithmetic:
    """`a + b`, `a - b` and `a * b` of numbers with exactly `digits` digits."""

    def __init__(self, *, digits: int = 2, operators: str = OPERATORS) -> None:
        """`operators` is one or more of `+-*`, each equally frequent. Raises `ConfigError`."""
        check_options(
            "arithmetic",
            fault_unless_between("digits", digits, 1, MAX_DIGITS),
            _fault_in_operators(operators),
        )
        self.digits = digits
        self.operators = operators

    @property
    def revision(self) -> str:
        """The generator's version and options."""
        return f"arithmetic-1 digits={self.digits} operators={self.operators}"

    @property
    def grader(self) -> Grader:
        """See `rllm_bench.graders.exact`."""
        return IntegerGrader()

    def tasks(self, split: str, *, limit: int | None = None, seed: int = 0) -> Sequence[Task]:
        """Distinct problems of `split`, at most `limit`."""
        numbers = _numbers(self.digits)
        listable = len(self.operators) * 100**self.digits <= LISTABLE_PROBLEMS
        space: Space[Problem] = Space(
            name="arithmetic",
            key=_key,
            draw=lambda rng: Problem(_pick(rng, numbers), rng.choice(self.operators), _pick(rng, numbers)),
            every=(lambda: _every_problem(self.digits, self.operators)) if listable else None,
        )
        return [_task(problem) for problem in choose(space, split, limit=limit, seed=seed)]


def _fault_in_operators(operators: str) -> str | None:
    known = (
        isinstance(operators, str) and 0 < len(operators) == len(set(operators)) and set(operators) <= set(OPERATORS)
    )
    return None if known else f"operators={operators!r} must be one or more of {OPERATORS!r}, each at most once"


def _numbers(digits: int) -> tuple[int, int]:
    """The smallest and the largest number with that many digits; 0 has one."""
    return (0 if digits == 1 else 10 ** (digits - 1), 10**digits - 1)


def _pick(rng: random.Random, bounds: tuple[int, int]) -> int:
    return rng.randint(*bounds)


@lru_cache(maxsize=4)
def _every_problem(digits: int, operators: str) -> tuple[Problem, ...]:
    low, high = _numbers(digits)
    numbers = range(low, high + 1)
    return tuple(Problem(a, operator, b) for a, operator, b in product(numbers, operators, numbers))


def _key(problem: Problem) -> str:
    """`3 + 5` and `5 + 3` are one problem for the choice of the split."""
    left, right = problem.left, problem.right
    if problem.operator != "-":
        left, right = min(left, right), max(left, right)
    return f"arithmetic {left} {problem.operator} {right}"


def _task(problem: Problem) -> Task:
    question = f"{problem.left} {problem.operator} {problem.right}"
    return Task(
        id=f"arithmetic-{question.replace(' ', '')}",
        instruction=f"What is {question}? Give the whole number in <answer> tags.",
        metadata={"operator": problem.operator},
        reference={"answer": str(problem.value)},
        category={"+": "addition", "-": "subtraction", "*": "multiplication"}[problem.operator],
    )
