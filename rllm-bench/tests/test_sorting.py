from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from rllm.errors import ConfigError
from rllm.testing import BenchmarkConformance
from rllm.types import Episode, Task
from rllm_bench.sorting import Sort


@pytest.mark.parametrize(
    "benchmark",
    [Sort(), Sort(length=2), Sort(items="numbers", length=20), Sort(items="numbers", length=3, max_number=9)],
    ids=lambda benchmark: benchmark.revision,
)
def test_the_ordered_list_scores_and_the_list_as_shown_does_not(benchmark: Sort) -> None:
    for task in benchmark.tasks("test", limit=30):
        assert isinstance(task.instruction, str)
        shown = task.instruction.partition(": ")[2].partition(". ")[0].split(", ")
        ordered = sorted(shown, key=int if benchmark.items == "numbers" else str)
        assert len(shown) == benchmark.length
        for answer, reward in ((ordered, 1.0), (shown, 0.0)):
            episode = Episode(artifacts={"answer": f"<answer>{', '.join(answer)}</answer>"})
            assert benchmark.grader.grade(task, episode).reward == reward


def test_no_order_of_a_training_list_is_in_the_test_split() -> None:
    benchmark = Sort(length=3, items="numbers", max_number=9)
    train, test = (
        {tuple(task.reference["items"]) for seed in range(3) for task in benchmark.tasks(split, seed=seed)}
        for split in ("train", "test")
    )
    assert not train & test


def test_tasks_repeat_for_a_seed_and_are_unique() -> None:
    tasks = Sort().tasks("train", seed=2)
    assert list(tasks) == list(Sort().tasks("train", seed=2))
    assert len({task.id for task in tasks}) == len(tasks) == 1000


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Sort(length=1, items="words", max_number=0)
    assert len(caught.value.faults) == 3


class TestConformance(BenchmarkConformance):
    @pytest.fixture(params=[{}, {"items": "numbers", "length": 3, "max_number": 9}], ids=str)
    def make_benchmark(self, request: pytest.FixtureRequest) -> Callable[[], Sort]:
        return partial(Sort, **request.param)

    def solution(self, task: Task) -> str:
        return f"<answer>{', '.join(task.reference['items'])}</answer>"
