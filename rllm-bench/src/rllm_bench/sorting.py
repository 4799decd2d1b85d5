"""Sorting: the whole answer must be in order, and copying the question never is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise, product
from string import ascii_lowercase

from rllm.interfaces.grader import Grader
from rllm.types import Task
from rllm_bench.graders.exact import SequenceGrader
from rllm_bench.procedural import Space, check_options, choose, fault_unless_between

__all__ = ["Sort"]

LISTABLE_PROBLEMS = 50_000
Problem = tuple[int, ...]
"""The items as shown: numbers, or positions in the alphabet."""


class Sort:
    """`length` letters or numbers, repeats allowed, never already in order."""

    def __init__(self, *, length: int = 5, items: str = "letters", max_number: int = 99) -> None:
        """`items` is `letters` or `numbers`; numbers run from 0 to `max_number`. Raises `ConfigError`."""
        check_options(
            "sort",
            fault_unless_between("length", length, 2, 100),
            fault_unless_between("max_number", max_number, 1, 1_000_000),
            None if items in ("letters", "numbers") else f"items={items!r} must be 'letters' or 'numbers'",
        )
        self.length = length
        self.items = items
        self.max_number = max_number

    @property
    def revision(self) -> str:
        """The generator's version and options."""
        return f"sort-1 length={self.length} items={self.items} max_number={self.max_number}"

    @property
    def grader(self) -> Grader:
        """See `rllm_bench.graders.exact`."""
        return SequenceGrader()

    def tasks(self, split: str, *, limit: int | None = None, seed: int = 0) -> Sequence[Task]:
        """Distinct problems of `split`, at most `limit`."""
        values = len(ascii_lowercase) if self.items == "letters" else self.max_number + 1
        space: Space[Problem] = Space(
            name="sort",
            key=lambda problem: f"sort {self.items} {sorted(problem)}",
            draw=lambda rng: _draw(rng, values, self.length),
            every=(lambda: _every_problem(values, self.length)) if values**self.length <= LISTABLE_PROBLEMS else None,
        )
        return [self._task(problem) for problem in choose(space, split, limit=limit, seed=seed)]

    def _task(self, problem: Problem) -> Task:
        letters = self.items == "letters"
        shown = [ascii_lowercase[item] if letters else str(item) for item in problem]
        ordered = [ascii_lowercase[item] if letters else str(item) for item in sorted(problem)]
        order = "letters in alphabetical order" if letters else "numbers from smallest to largest"
        return Task(
            id=f"sort-{'-'.join(shown)}",
            instruction=(
                f"Put these {order}: {', '.join(shown)}. Give all of them, separated by commas, in <answer> tags."
            ),
            reference={"items": ordered},
        )


def _in_order(problem: Problem) -> bool:
    return all(a <= b for a, b in pairwise(problem))


def _draw(rng: random.Random, values: int, length: int) -> Problem | None:
    problem = tuple(rng.randrange(values) for _ in range(length))
    return None if _in_order(problem) else problem


@lru_cache(maxsize=4)
def _every_problem(values: int, length: int) -> tuple[Problem, ...]:
    return tuple(each for each in product(range(values), repeat=length) if not _in_order(each))
