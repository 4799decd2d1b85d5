"""A benchmark: tasks, and how they are graded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rllm.interfaces.grader import Grader
from rllm.types import Task

__all__ = ["Benchmark"]


class Benchmark(Protocol):
    """Tasks in a fixed order that depends only on the arguments."""

    @property
    def revision(self) -> str:
        """Identifies the data: a generator's version, or a digest of the rows."""
        ...

    def tasks(self, split: str, *, limit: int | None = None, seed: int = 0) -> Sequence[Task]:
        """Tasks of `split`; ids are unique, and splits share no task.

        At most `limit` of them; all that exist when there are fewer. A procedural benchmark draws them from `seed`, a
        sensible number without a limit. Raises `DataError` when the split does not exist or its data is missing,
        empty or malformed.
        """
        ...

    @property
    def grader(self) -> Grader:
        """Grades every task of the benchmark."""
        ...
