"""Choosing tasks from a space of generated problems. What a problem is, each benchmark says itself.

Which split a problem belongs to depends on the problem alone, so that train and test are disjoint whatever
the seeds, limits and options with which they were generated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rllm.errors import ConfigError, DataError
from rllm.ids import derive_seed

__all__ = ["SPLITS", "Space", "check_options", "choose", "fault_unless_between", "split_of"]

SPLITS = ("train", "test")
TEST_SHARE = 5
"""One key in so many is a test key."""
DEFAULT_LIMITS = {"train": 1000, "test": 200}
"""Tasks without a limit, or all if there are fewer."""
FUTILE_DRAWS = 20_000
"""A space is exhausted for practical purposes after so many draws in a row that gave nothing new."""

P = TypeVar("P", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Space(Generic[P]):
    """The problems that a benchmark can generate with its options."""

    name: str
    """The benchmark's name."""
    key: Callable[[P], str]
    """What decides the split: problems that are the same in essence have equal keys."""
    draw: Callable[[random.Random], P | None]
    """A random problem, or None for a draw that failed."""
    every: Callable[[], Sequence[P]] | None
    """Each problem once, in a fixed order; None for a space too large to list."""


def split_of(key: str) -> str:
    """The split of every problem with that key, stable for ever."""
    return "test" if derive_seed("rllm-bench split", key) % TEST_SHARE == 0 else "train"


def choose(space: Space[P], split: str, *, limit: int | None, seed: int) -> list[P]:
    """Distinct problems of `split`: at most `limit`, or a sensible number without one; all when fewer exist.

    A smaller limit gives a prefix of what a larger one gives. Raises `DataError` for an unknown split, for a
    limit below 1 and for options that leave the split empty.
    """
    if split not in SPLITS:
        raise DataError(f"{space.name} has no split {split!r}; it has {' and '.join(map(repr, SPLITS))}")
    if limit is not None and limit < 1:
        raise DataError(f"limit={limit!r} asks {space.name} for no task; give at least 1")
    wanted = DEFAULT_LIMITS[split] if limit is None else limit
    rng = random.Random(derive_seed(space.name, split, seed))
    if space.every is not None:
        found = [problem for problem in space.every() if split_of(space.key(problem)) == split]
        rng.shuffle(found)
    else:
        found = list(_drawn(space, split, wanted, rng))
    if not found:
        raise DataError(f"{space.name} has no problem in split {split!r} with these options; make it harder")
    return found[:wanted]


def _drawn(space: Space[P], split: str, wanted: int, rng: random.Random) -> Iterator[P]:
    seen: set[P] = set()
    futile = 0
    while len(seen) < wanted and futile < FUTILE_DRAWS:
        problem = space.draw(rng)
        if problem is None or problem in seen or split_of(space.key(problem)) != split:
            futile += 1
            continue
        futile = 0
        seen.add(problem)
        yield problem


def fault_unless_between(name: str, value: int, low: int, high: int) -> str | None:
    """What is wrong with an option that must be a whole number from `low` to `high`, or None."""
    if type(value) is int and low <= value <= high:
        return None
    return f"{name}={value!r} must be a whole number from {low} to {high}"


def check_options(benchmark: str, *faults: str | None) -> None:
    """Raise one `ConfigError` with every fault that is not None."""
    found = [f"{benchmark}: {fault}" for fault in faults if fault is not None]
    if found:
        raise ConfigError(*found)
