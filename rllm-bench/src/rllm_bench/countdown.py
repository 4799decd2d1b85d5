"""Countdown: make the target from the numbers. Every problem has a solution, because it is made from one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations_with_replacement
from math import comb
from typing import NamedTuple

from rllm.ids import derive_seed
from rllm.interfaces.grader import Grader
from rllm.types import Task
from rllm_bench.graders.countdown import CountdownGrader
from rllm_bench.procedural import Space, check_options, choose, fault_unless_between

__all__ = ["Countdown", "Problem"]

LISTABLE_WORK = 500_000
"""Up to about this many sub-results (a second of work), every problem is listed; beyond, problems are
drawn."""


class Problem(NamedTuple):
    """One problem in its canonical form."""

    numbers: tuple[int, ...]
    """Ascending."""
    target: int


class Countdown:
    """Problems whose solutions use `+ - * /` with a positive whole number at every step."""

    def __init__(self, *, count: int = 2, max_number: int = 30, max_target: int = 99) -> None:
        """`count` numbers from 1 to `max_number`, targets from 1 to `max_target`. Raises `ConfigError`."""
        check_options(
            "countdown",
            fault_unless_between("count", count, 2, 8),
            fault_unless_between("max_number", max_number, 1, 10_000),
            fault_unless_between("max_target", max_target, 1, 1_000_000),
        )
        self.count = count
        self.max_number = max_number
        self.max_target = max_target

    @property
    def revision(self) -> str:
        """The generator's version and options."""
        return f"countdown-1 count={self.count} max_number={self.max_number} max_target={self.max_target}"

    @property
    def grader(self) -> Grader:
        """See `rllm_bench.graders.countdown`."""
        return CountdownGrader()

    def tasks(self, split: str, *, limit: int | None = None, seed: int = 0) -> Sequence[Task]:
        """Distinct problems of `split`, at most `limit`."""
        multisets = comb(self.max_number + self.count - 1, self.count)
        listable = multisets * 8 ** (self.count - 1) <= LISTABLE_WORK
        space: Space[Problem] = Space(
            name="countdown", key=_name, draw=self._draw, every=self._every if listable else None
        )
        return [_task(problem) for problem in choose(space, split, limit=limit, seed=seed)]

    def _every(self) -> Sequence[Problem]:
        return _every_problem(self.count, self.max_number, self.max_target)

    def _draw(self, rng: random.Random) -> Problem | None:
        numbers = [rng.randint(1, self.max_number) for _ in range(self.count)]
        values = list(numbers)
        while len(values) > 1:
            rng.shuffle(values)
            values.append(rng.choice(_results(values.pop(), values.pop())))
        return Problem(tuple(sorted(numbers)), values[0]) if values[0] <= self.max_target else None


def _results(a: int, b: int) -> list[int]:
    """The positive whole numbers that one operation makes of two positive ones."""
    low, high = min(a, b), max(a, b)
    results = [low + high, low * high]
    if high > low:
        results.append(high - low)
    if high % low == 0:
        results.append(high // low)
    return results


def _reachable(numbers: tuple[int, ...]) -> set[int]:
    """Every value made of all the numbers with a positive whole number at every step."""
    full = (1 << len(numbers)) - 1
    values: list[set[int]] = [set() for _ in range(full + 1)]
    for index, number in enumerate(numbers):
        values[1 << index] = {number}
    for subset in range(1, full + 1):
        part = (subset - 1) & subset
        while part > (rest := subset ^ part):
            for a in values[part]:
                for b in values[rest]:
                    values[subset].update(_results(a, b))
            part = (part - 1) & subset
    return values[full]


@lru_cache(maxsize=4)
def _every_problem(count: int, max_number: int, max_target: int) -> tuple[Problem, ...]:
    return tuple(
        Problem(numbers, target)
        for numbers in combinations_with_replacement(range(1, max_number + 1), count)
        for target in sorted(_reachable(numbers))
        if target <= max_target
    )


def _name(problem: Problem) -> str:
    return f"countdown-{'-'.join(map(str, problem.numbers))}-{problem.target}"


def _task(problem: Problem) -> Task:
    name = _name(problem)
    shown = list(problem.numbers)
    random.Random(derive_seed("countdown order", name)).shuffle(shown)
    return Task(
        id=name,
        instruction=(
            f"Use each of the numbers {', '.join(map(str, shown))} exactly once with +, -, *, / "
            f"and parentheses to make {problem.target}. Give the expression in <answer> tags."
        ),
        reference={"numbers": shown, "target": problem.target},
    )
