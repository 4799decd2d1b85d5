"""A benchmark that needs no data: sums of two numbers, generated from a seed and graded exactly."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from rllm.errors import DataError
from rllm.ids import derive_seed
from rllm.types import Episode, EvalOutput, Task

__all__ = ["ExampleBenchmark", "ExampleGrader"]


class ExampleGrader:
    """Reward 1 when the last whole number of the reply is the sum, else 0."""

    def grade(self, task: Task, episode: Episode) -> EvalOutput:
        """Compare the reply with `task.reference["answer"]`."""
        numbers = re.findall(r"-?\d+", episode.final_text())
        correct = bool(numbers) and numbers[-1] == str(task.reference["answer"])
        return EvalOutput(reward=float(correct), is_correct=correct)


class ExampleBenchmark:
    """Sums of two numbers up to `largest`. A fifth of all pairs is the split `test`, the rest is `train`."""

    def __init__(self, *, largest: int = 99) -> None:
        self.largest = largest
        self.grader = ExampleGrader()

    @property
    def revision(self) -> str:
        """Version of the generator: the same one and the same arguments give the same tasks."""
        return f"1-{self.largest}"

    def tasks(self, split: str, *, limit: int | None = None, seed: int = 0) -> Sequence[Task]:
        """Up to `limit` different sums (100 without one). Raises `DataError` for an unknown split."""
        if split not in ("train", "test"):
            raise DataError(f"there is no split {split!r}; expected 'train' or 'test'")
        numbers = range(self.largest + 1)
        pairs = [(a, b) for a in numbers for b in numbers if (split == "test") == self._held_out(a, b)]
        count = min(len(pairs), 100 if limit is None else limit)
        chosen = random.Random(derive_seed("example", split, seed)).sample(pairs, count)
        return [
            Task(
                id=f"{a}+{b}",
                instruction=f"What is {a} + {b}? Answer with the number alone.",
                reference={"answer": str(a + b)},
            )
            for a, b in chosen
        ]

    @staticmethod
    def _held_out(a: int, b: int) -> bool:
        return derive_seed(a, b) % 5 == 0
