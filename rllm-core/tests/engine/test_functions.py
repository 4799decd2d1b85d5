import asyncio
import time
from typing import Any

import numpy as np
import pytest

from rllm.engine.functions import FunctionGrader, FunctionHarness, as_grader, as_harness, coerce_eval_output
from rllm.errors import GradingError
from rllm.types import AgentConfig, Episode, EvalOutput, Task

CONFIG = AgentConfig(base_url="http://127.0.0.1:1/v1", model="m", api_key="k")
TASK = Task(id="t", instruction="go")


@pytest.mark.parametrize(
    ("value", "reward", "correct"),
    [
        (True, 1.0, True),
        (False, 0.0, False),
        (1, 1.0, True),
        (0.999999, 0.999999, False),
        (np.float32(1), 1.0, True),
        (np.int64(2), 2.0, True),
        (np.array(0.5), 0.5, False),
        ((0.5, True), 0.5, True),
        (EvalOutput(reward=-1.0), -1.0, False),
    ],
)
def test_the_reward_contract(value: object, reward: float, correct: bool) -> None:
    output = coerce_eval_output(value, who="evaluator 'e'")
    assert (output.reward, output.is_correct) == (reward, correct)


@pytest.mark.parametrize("value", ["1", None, [1.0], {"reward": 1}, float("nan"), float("inf"), np.nan, (1, True, 2)])
def test_what_is_not_a_finite_number_is_refused_with_the_value(value: object) -> None:
    with pytest.raises(GradingError, match="evaluator 'e'"):
        coerce_eval_output(value, who="evaluator 'e'")


async def test_sync_flows_run_side_by_side_and_do_not_block_the_loop() -> None:
    def slow(task: Task, config: AgentConfig) -> None:
        time.sleep(0.2)

    harness = as_harness(slow)
    lag = 0.0

    async def heartbeat() -> None:
        nonlocal lag
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            lag = max(lag, time.perf_counter() - before)

    beat = asyncio.create_task(heartbeat())
    started = time.perf_counter()
    await asyncio.gather(*(harness.run(TASK, CONFIG, None) for _ in range(100)))
    beat.cancel()
    assert time.perf_counter() - started < 3.0
    assert lag < 0.5


async def test_async_functions_and_callable_objects_work() -> None:
    class Flow:
        async def __call__(self, task: Task, config: AgentConfig) -> None:
            await asyncio.sleep(0)

    async def grade(task: Task, episode: Episode) -> float:
        return 0.5

    assert await as_harness(Flow()).run(TASK, CONFIG, None) is None
    assert (await as_grader(grade).grade(TASK, Episode())).reward == 0.5


def test_a_decorated_function_can_still_be_called() -> None:
    def double(task: Any, config: Any) -> Any:
        return (task, config)

    assert FunctionHarness(double)(1, 2) == (1, 2)
    assert FunctionHarness(double).name == "double"


def test_a_wrong_signature_is_refused_when_decorated() -> None:
    def flow(task: Any) -> None: ...

    with pytest.raises(TypeError, match=r"must accept \(task, config\)"):
        FunctionHarness(flow)
    with pytest.raises(TypeError, match=r"must accept \(task, episode\)"):
        FunctionGrader(flow)


async def test_env_is_passed_only_to_those_who_take_it() -> None:
    def flow(task: Task, config: AgentConfig, env: object) -> None:
        assert env is None

    harness = FunctionHarness(flow)
    assert harness.takes_env
    await harness.run(TASK, CONFIG, None)
