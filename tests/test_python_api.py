"""The README's program, as a user of the field would write it, with the official client."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rllm
from rllm.store import RunStore

ROOT = Path(__file__).parents[1]


def readme_program() -> str:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    return str(program)


def test_the_readmes_program_runs(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(readme_program().replace('"trainer.steps": 20', '"trainer.steps": 2'))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**__import__("os").environ, "RLLM_HOME": str(tmp_path)},
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).resolve().is_dir()


ROWS = [{"id": f"r/{n}:x", "question": f"Answer {n}.", "answer": str(n)} for n in range(4)]


def test_async_clients_roles_and_per_role_rewards_are_captured(tmp_path: Path) -> None:
    from openai import AsyncOpenAI

    @rllm.rollout
    async def debate(task: Any, config: Any) -> Any:
        trajectories = []
        for role in ("solver", "judge"):
            own = config.for_agent(role)
            async with AsyncOpenAI(base_url=own.base_url, api_key=own.api_key) as client:
                reply = await client.chat.completions.create(
                    model=own.model, messages=[{"role": "user", "content": f"{role}: {task.instruction}"}]
                )
            step = rllm.Step(response_id=reply.id, action=role)
            trajectories.append(rllm.Trajectory(name=role, steps=[step], reward=1.0 if role == "judge" else 0.0))
        return trajectories

    @rllm.evaluator
    async def score(task: Any, episode: Any) -> Any:
        return rllm.EvalOutput(reward=0.5, is_correct=True, signals=[rllm.Signal(name="format", value=1.0)])

    result = rllm.evaluate(
        debate, evaluator=score, dataset=ROWS, model="embedded", config={"sampling.max_tokens": 8}, runs=tmp_path
    )
    assert result.summary.accuracy == 1.0
    assert result.summary.mean_reward == 0.5
    with RunStore.open(result.path, write=False) as store:
        episodes = list(store.episodes(split="eval"))
    assert sorted(episode.task_id for episode in episodes) == sorted(row["id"] for row in ROWS)
    for episode in episodes:
        assert [(t.name, t.reward, t.steps[0].action) for t in episode.trajectories] == [
            ("solver", 0.0, "solver"),
            ("judge", 1.0, "judge"),
        ]
        assert all(call.trainable and call.role == t.name for t in episode.trajectories for call in [t.steps[0].call])
        assert [signal.name for signal in episode.signals] == ["format"]


def test_a_flow_that_returns_nonsense_is_the_agents_error(tmp_path: Path) -> None:
    @rllm.rollout
    def wrong(task: Any, config: Any) -> Any:
        return 42

    @rllm.evaluator
    def score(task: Any, episode: Any) -> float:
        return 1.0

    result = rllm.evaluate(wrong, evaluator=score, dataset=ROWS, model="embedded", runs=tmp_path)
    assert result.summary.statuses == {"agent_error": 4}
    assert result.summary.accuracy is None
    with RunStore.open(result.path, write=False) as store:
        (error, *_) = [episode.error for episode in store.episodes(split="eval")]
    assert error is not None
    assert "return None, an Episode, a Trajectory or a list" in error.message


@pytest.mark.parametrize("reward", [float("nan"), "1.0", None])
def test_a_reward_that_is_not_a_finite_number_leaves_the_episode_ungraded(tmp_path: Path, reward: Any) -> None:
    def flow(task: Any, config: Any) -> None:
        return None

    def score(task: Any, episode: Any) -> Any:
        return reward

    result = rllm.evaluate(flow, evaluator=score, dataset=ROWS[:1], model="embedded", runs=tmp_path)
    assert result.summary.statuses == {"ungraded": 1}
    assert result.summary.errors == {"GradingError": 1}
