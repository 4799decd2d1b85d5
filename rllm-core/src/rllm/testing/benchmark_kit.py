"""What every benchmark and its grader promise."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from rllm.errors import DataError
from rllm.interfaces.benchmark import Benchmark
from rllm.testing.promise import Kit, fill_in
from rllm.types import Episode, EvalOutput, Step, Task, Trajectory

__all__ = ["BenchmarkConformance"]

MakeBenchmark = Callable[[], Benchmark]


def episode_saying(text: str) -> Episode:
    """An attempt whose only reply was `text`."""
    return Episode(trajectories=[Trajectory(steps=[Step(output=text)])])


class BenchmarkConformance(Kit):
    """Subclass it and return, from the fixture `make_benchmark`, a function that makes a fresh benchmark."""

    splits: tuple[str, ...] = ("train", "test")
    limit = 20
    """Tasks of each split that the promises are tried on."""

    @pytest.fixture
    def make_benchmark(self) -> MakeBenchmark:
        """Makes the benchmark under test; two of them must agree."""
        fill_in("make_benchmark", "BenchmarkConformance", "a function that makes the benchmark")

    def solution(self, task: Task) -> str:
        """A reply that solves the task; by convention `task.reference["answer"]`."""
        if "answer" not in task.reference:
            pytest.fail("override the method solution: the reference of a task has no 'answer'")
        return str(task.reference["answer"])

    def test_names_its_revision(self, make_benchmark: MakeBenchmark) -> None:
        first, again = make_benchmark().revision, make_benchmark().revision
        assert first, f"revision is {first!r}; it must identify the data"
        assert first == again, f"two benchmarks have the revisions {first!r} and {again!r}"

    def test_gives_the_same_tasks_again(self, make_benchmark: MakeBenchmark) -> None:
        for split in self.splits:
            first = list(make_benchmark().tasks(split, limit=self.limit, seed=3))
            again = list(make_benchmark().tasks(split, limit=self.limit, seed=3))
            assert first == again, f"split {split!r}: tasks depend on more than the arguments"

    def test_honours_the_limit(self, make_benchmark: MakeBenchmark) -> None:
        for split in self.splits:
            size = len(make_benchmark().tasks(split, limit=2))
            assert size == 2, f"split {split!r}: limit=2 gave {size} tasks"

    def test_has_no_task_twice(self, make_benchmark: MakeBenchmark) -> None:
        for split in self.splits:
            ids = [task.id for task in make_benchmark().tasks(split, limit=self.limit)]
            assert all(ids), f"split {split!r}: a task has no id"
            assert len(ids) == len(set(ids)), f"split {split!r}: ids are not unique"

    def test_shares_no_task_between_splits(self, make_benchmark: MakeBenchmark) -> None:
        seen: dict[str, str] = {}
        for split in self.splits:
            for task in make_benchmark().tasks(split):
                assert seen.setdefault(str(task.instruction), split) == split, (
                    f"splits {seen[str(task.instruction)]!r} and {split!r} share {task.instruction!r}"
                )

    def test_refuses_an_unknown_split(self, make_benchmark: MakeBenchmark) -> None:
        with pytest.raises(DataError):
            make_benchmark().tasks("no-such-split", limit=1)

    def test_instructs_the_agent(self, make_benchmark: MakeBenchmark) -> None:
        for split in self.splits:
            for task in make_benchmark().tasks(split, limit=self.limit):
                assert task.instruction, f"task {task.id!r} has no instruction"

    def test_keeps_the_reference_from_the_agent(self, make_benchmark: MakeBenchmark) -> None:
        for split in self.splits:
            for task in make_benchmark().tasks(split, limit=self.limit):
                assert not (task.reference.keys() & task.metadata.keys()), (
                    f"task {task.id!r}: metadata repeats {sorted(task.reference.keys() & task.metadata.keys())}"
                )

    def test_survives_json(self, make_benchmark: MakeBenchmark) -> None:
        for split in self.splits:
            for task in make_benchmark().tasks(split, limit=self.limit):
                assert Task.model_validate_json(task.model_dump_json()) == task, (
                    f"task {task.id!r} changes on its way through JSON"
                )

    def test_rewards_a_solution_above_nonsense(self, make_benchmark: MakeBenchmark) -> None:
        benchmark = make_benchmark()
        for split in self.splits:
            for task in benchmark.tasks(split, limit=self.limit):
                right = benchmark.grader.grade(task, episode_saying(self.solution(task)))
                wrong = benchmark.grader.grade(task, episode_saying("xyzzy"))
                assert right.is_correct, f"task {task.id!r}: its solution is not correct"
                assert right.reward > wrong.reward, (
                    f"task {task.id!r}: reward {right.reward} for its solution, {wrong.reward} for nonsense"
                )

    def test_gives_finite_rewards_whatever_the_reply(self, make_benchmark: MakeBenchmark) -> None:
        benchmark = make_benchmark()
        task = benchmark.tasks(self.splits[-1], limit=1)[0]
        for text in ("", " ", "\x00", "9" * 5000, "NaN", "inf", "1/0", "\\boxed{", "é😀" * 500, "(" * 1000):
            found = benchmark.grader.grade(task, episode_saying(text))
            assert isinstance(found, EvalOutput), f"the grader returned {found!r}"
            assert math.isfinite(found.reward), f"reward {found.reward} for the reply {text[:20]!r}"

    def test_grades_an_episode_the_same_again(self, make_benchmark: MakeBenchmark) -> None:
        benchmark = make_benchmark()
        task = benchmark.tasks(self.splits[-1], limit=1)[0]
        for text in (self.solution(task), "xyzzy"):
            episode = episode_saying(text)
            before = episode.model_copy(deep=True)
            first = benchmark.grader.grade(task, episode)
            assert episode == before, "the grader changed the episode"
            assert benchmark.grader.grade(task, episode) == first, f"reply {text!r} was graded in two ways"
