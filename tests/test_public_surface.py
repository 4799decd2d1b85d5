"""What users import, pinned."""

import subprocess
import sys

import rllm

HEAVY = ("torch", "transformers", "openai", "docker", "datasets", "pydantic", "numpy", "aiohttp")


def test_the_public_names_are_pinned() -> None:
    assert rllm.__all__ == [
        "AgentConfig",
        "AgentTrainer",
        "Episode",
        "EvalOutput",
        "Signal",
        "Step",
        "Task",
        "Trajectory",
        "evaluate",
        "evaluator",
        "rollout",
    ]
    assert all(getattr(rllm, name) is not None for name in rllm.__all__)


def test_paths_that_users_of_the_field_know_work() -> None:
    from rllm.eval.types import EvalOutput, Signal
    from rllm.trainer import AgentTrainer
    from rllm.types import Episode, Step, Trajectory

    assert (EvalOutput, Signal, AgentTrainer) == (rllm.EvalOutput, rllm.Signal, rllm.AgentTrainer)
    assert (Episode, Step, Trajectory) == (rllm.Episode, rllm.Step, rllm.Trajectory)


def test_importing_rllm_imports_nothing_heavy() -> None:
    code = f"import sys, rllm; print([m for m in {HEAVY!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
