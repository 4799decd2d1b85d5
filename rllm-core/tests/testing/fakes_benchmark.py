"""Benchmarks that break one promise each."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from rllm.testing import BenchmarkConformance
from rllm.testing.examples.benchmark import ExampleBenchmark, ExampleGrader


def changed(task: Any, **update: Any) -> Any:
    return task.model_copy(update=update)


class TestGood(BenchmarkConformance):
    limit = 5

    class Benchmark(ExampleBenchmark):
        def __init__(self) -> None:
            super().__init__(largest=19)

    @pytest.fixture
    def make_benchmark(self) -> Any:
        return self.Benchmark


class TestNoRevision(TestGood):
    class Benchmark(TestGood.Benchmark):
        revision = ""


class TestOtherTasks(TestGood):
    class Benchmark(TestGood.Benchmark):
        def tasks(self, split: str, **options: Any) -> Any:
            tasks = list(super().tasks(split, **options))
            random.shuffle(tasks)
            return tasks


class TestNoLimit(TestGood):
    class Benchmark(TestGood.Benchmark):
        def tasks(self, split: str, *, limit: int | None = None, seed: int = 0) -> Any:
            return super().tasks(split, limit=3, seed=seed)


class TestSameIds(TestGood):
    class Benchmark(TestGood.Benchmark):
        def tasks(self, split: str, **options: Any) -> Any:
            return [changed(task, id="one") for task in super().tasks(split, **options)]


class TestLeakingSplits(TestGood):
    class Benchmark(TestGood.Benchmark):
        def tasks(self, split: str, **options: Any) -> Any:
            return super().tasks("train" if split == "test" else split, **options)


class TestAnySplit(TestGood):
    class Benchmark(TestGood.Benchmark):
        def tasks(self, split: str, **options: Any) -> Any:
            return super().tasks(split, **options) if split in ("train", "test") else []


class TestNoInstruction(TestGood):
    class Benchmark(TestGood.Benchmark):
        def tasks(self, split: str, **options: Any) -> Any:
            first, *others = super().tasks(split, **options)
            return [changed(first, instruction=""), *others] if split == "train" else [first, *others]


class TestTellsTheAnswer(TestGood):
    class Benchmark(TestGood.Benchmark):
        def tasks(self, split: str, **options: Any) -> Any:
            return [changed(task, metadata=task.reference) for task in super().tasks(split, **options)]


class TestNotJson(TestGood):
    class Benchmark(TestGood.Benchmark):
        def tasks(self, split: str, **options: Any) -> Any:
            return [changed(task, metadata={"range": (0, 19)}) for task in super().tasks(split, **options)]


class TestRewardsEverything(TestGood):
    class Benchmark(TestGood.Benchmark):
        class Grader(ExampleGrader):
            def grade(self, task: Any, episode: Any) -> Any:
                return changed(super().grade(task, episode), reward=1.0, is_correct=True)

        def __init__(self) -> None:
            super().__init__()
            self.grader = self.Grader()


class TestNotFinite(TestGood):
    class Benchmark(TestGood.Benchmark):
        class Grader(ExampleGrader):
            def grade(self, task: Any, episode: Any) -> Any:
                found = super().grade(task, episode)
                return changed(found, reward=math.nan) if episode.final_text() == "NaN" else found

        def __init__(self) -> None:
            super().__init__()
            self.grader = self.Grader()


class TestMoody(TestGood):
    class Benchmark(TestGood.Benchmark):
        class Grader(ExampleGrader):
            count = 0

            def grade(self, task: Any, episode: Any) -> Any:
                self.count += 1
                found = super().grade(task, episode)
                return changed(found, reward=found.reward + 1e-9 * self.count)

        def __init__(self) -> None:
            super().__init__()
            self.grader = self.Grader()
