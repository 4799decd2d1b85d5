from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import pytest

from rllm.errors import ConfigError
from rllm.testing import BenchmarkConformance
from rllm.types import Task
from rllm_bench.countdown import Countdown


def solution(numbers: list[int], target: int) -> str | None:
    """Brute force over every expression, with exact fractions: independent of how problems are made."""
    items = [(Fraction(number), str(number)) for number in numbers]
    return _search(items, target)


def _search(items: list[tuple[Fraction, str]], target: int) -> str | None:
    if len(items) == 1:
        return items[0][1] if items[0][0] == target else None
    for i, j in itertools.permutations(range(len(items)), 2):
        (a, left), (b, right) = items[i], items[j]
        rest = [item for k, item in enumerate(items) if k not in (i, j)]
        results = [(a + b, "+"), (a - b, "-"), (a * b, "*")] + ([(a / b, "/")] if b else [])
        for value, operator in results:
            found = _search([*rest, (value, f"({left}{operator}{right})")], target)
            if found:
                return found
    return None


def target_of(task: Task) -> int:
    return int(task.reference["target"])


def test_the_instruction_is_exactly_the_documented_one() -> None:
    task = Countdown().tasks("train", limit=1)[0]
    first, second = task.reference["numbers"]
    assert task.instruction == (
        f"Use each of the numbers {first}, {second} exactly once with +, -, *, / and parentheses to make "
        f"{target_of(task)}. Give the expression in <answer> tags."
    )


@pytest.mark.parametrize(
    "benchmark",
    [
        Countdown(),
        Countdown(max_number=99),
        Countdown(count=3, max_number=9),
        Countdown(count=4, max_number=60),
    ],
    ids=lambda benchmark: benchmark.revision,
)
def test_every_problem_has_a_solution_and_keeps_to_the_options(benchmark: Countdown) -> None:
    for split in ("train", "test"):
        for task in benchmark.tasks(split, limit=40, seed=5):
            numbers = task.reference["numbers"]
            assert len(numbers) == benchmark.count
            assert all(1 <= number <= benchmark.max_number for number in numbers)
            assert 1 <= target_of(task) <= benchmark.max_target
            assert solution(numbers, target_of(task))


def test_a_listed_space_holds_exactly_the_problems_that_brute_force_finds() -> None:
    benchmark = Countdown(max_number=6, max_target=12)
    tasks = [task for split in ("train", "test") for task in benchmark.tasks(split)]
    listed = {(tuple(sorted(task.reference["numbers"])), target_of(task)) for task in tasks}
    pairs = itertools.combinations_with_replacement(range(1, 7), 2)
    assert listed == {(pair, target) for pair in pairs for target in range(1, 13) if solution(list(pair), target)}
    assert len(tasks) == len(listed)


@pytest.mark.parametrize("options", [{}, {"count": 4, "max_number": 99}])
def test_train_and_test_share_no_problem_whatever_seeds_and_options(options: dict[str, int]) -> None:
    def problems(split: str) -> set[tuple[tuple[int, ...], int]]:
        tasks = [
            task
            for seed in range(4)
            for benchmark in (Countdown(**options), Countdown(**options, max_target=60))
            for task in benchmark.tasks(split, seed=seed)
        ]
        return {(tuple(sorted(task.reference["numbers"])), target_of(task)) for task in tasks}

    assert not problems("train") & problems("test")


def test_a_problem_is_the_same_task_whatever_the_seed() -> None:
    one, other = ({task.id: task for task in Countdown().tasks("train", seed=seed)} for seed in (0, 1))
    assert one == other
    assert list(one) != list(other)
    assert len(one) == len(Countdown().tasks("train"))


def test_the_default_problems_are_pinned() -> None:
    ids = [task.id for task in Countdown().tasks("test", limit=3, seed=0)]
    assert ids == ["countdown-4-8-4", "countdown-20-24-44", "countdown-15-29-44"]
    assert Countdown().revision == "countdown-1 count=2 max_number=30 max_target=99"


def test_a_limit_above_what_exists_gives_all_there_is() -> None:
    assert len(Countdown(max_number=12).tasks("test", limit=500)) == 43


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Countdown(count=1, max_number=0, max_target=2.5)  # type: ignore[arg-type]
    assert len(caught.value.faults) == 3


class TestConformance(BenchmarkConformance):
    @pytest.fixture(params=[{}, {"count": 3, "max_number": 9}, {"count": 4, "max_number": 99}], ids=str)
    def make_benchmark(self, request: pytest.FixtureRequest) -> Callable[[], Countdown]:
        return partial(Countdown, **request.param)

    def solution(self, task: Task) -> str:
        return f"<answer>{solution(task.reference['numbers'], target_of(task))}</answer>"
