"""The embedded model is warm-started in the words of the countdown benchmark, and never on its held-out problems.

The two packages do not import each other, so this is the only place that holds them together.
"""

from rllm.types import Episode
from rllm_backend_local.demonstrations import Problem, held_out, instruction, problems, reply, solutions
from rllm_bench.countdown import Countdown


def everything(split: str) -> list[Problem]:
    tasks = Countdown().tasks(split, limit=1_000_000)
    return [Problem(tuple(sorted(t.reference["numbers"])), t.reference["target"]) for t in tasks]


def test_the_prompts_are_the_benchmarks_word_for_word() -> None:
    for task in Countdown().tasks("test"):
        assert task.instruction == instruction(tuple(task.reference["numbers"]), task.reference["target"])


def test_the_demonstrations_leave_the_held_out_problems_out() -> None:
    assert all(held_out(problem) for problem in everything("test"))
    assert not any(held_out(problem) for problem in everything("train"))
    benchmark = Countdown()
    shown = set(problems(max_number=benchmark.max_number, max_target=benchmark.max_target))
    assert shown == set(everything("train"))


def test_the_demonstrated_solutions_are_right_by_the_benchmarks_grader() -> None:
    benchmark = Countdown()
    for task in benchmark.tasks("train", limit=100):
        problem = Problem(tuple(sorted(task.reference["numbers"])), task.reference["target"])
        for solution in solutions(problem):
            graded = benchmark.grader.grade(task, Episode(artifacts={"answer": reply(solution)}))
            assert graded.reward == 1.0, (task.instruction, solution)
