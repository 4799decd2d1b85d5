from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from rllm.errors import ConfigError
from rllm.testing import BenchmarkConformance
from rllm.types import Episode, Task
from rllm_bench.arithmetic import Arithmetic


@pytest.mark.parametrize("digits", [1, 2, 3, 40])
def test_answers_are_exact_and_operands_have_the_asked_length(digits: int) -> None:
    benchmark = Arithmetic(digits=digits)
    for task in benchmark.tasks("train", limit=60):
        assert isinstance(task.instruction, str)
        question = task.instruction.removeprefix("What is ").partition("?")[0]
        left, operator, right = question.split(" ")
        value = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[operator]
        assert len(left) == len(right) == digits
        assert task.reference == {"answer": str(value)}
        episode = Episode(artifacts={"answer": f"<answer>{value}</answer>"})
        assert benchmark.grader.grade(task, episode).is_correct


def test_swapped_operands_are_in_the_same_split() -> None:
    train, test = (
        {
            (operator, *sorted(task.id.removeprefix("arithmetic-").split(operator)))
            for task in Arithmetic(operators=operator).tasks(split)
        }
        for operator in "+"
        for split in ("train", "test")
    )
    assert not train & test


def test_tasks_repeat_for_a_seed_and_are_unique() -> None:
    for digits in (1, 3):
        tasks = Arithmetic(digits=digits).tasks("test", seed=7)
        assert list(tasks) == list(Arithmetic(digits=digits).tasks("test", seed=7))
        assert len({task.id for task in tasks}) == len(tasks)


def test_all_operators_occur_and_name_the_category() -> None:
    tasks = Arithmetic().tasks("train", limit=100)
    assert {task.category for task in tasks} == {"addition", "subtraction", "multiplication"}
    assert {task.category for task in Arithmetic(operators="-").tasks("test")} == {"subtraction"}


def test_impossible_options_and_limits_are_refused() -> None:
    for operators in ("", "/", "++", 5):
        with pytest.raises(ConfigError, match="operators"):
            Arithmetic(operators=operators)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="digits=0"):
        Arithmetic(digits=0)


def test_a_limit_above_what_exists_gives_all_there_is() -> None:
    few = Arithmetic(digits=1, operators="+")
    assert len(few.tasks("test", limit=1000)) == len(few.tasks("test")) < 100


class TestConformance(BenchmarkConformance):
    @pytest.fixture(params=[{}, {"digits": 12}], ids=str)
    def make_benchmark(self, request: pytest.FixtureRequest) -> Callable[[], Arithmetic]:
        return partial(Arithmetic, **request.param)

    def solution(self, task: Task) -> str:
        return f"<answer>{task.reference['answer']}</answer>"
