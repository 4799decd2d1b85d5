"""rllm: evaluate an agent program, then train it by reinforcement learning, unchanged.

The public surface, loaded when used, so that importing rllm is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllm.engine.functions import evaluator, rollout
    from rllm.eval.run import evaluate
    from rllm.trainer.agent_trainer import AgentTrainer
    from rllm.types import (
        AgentConfig,
        Episode,
        EvalOutput,
        Signal,
        Step,
        Task,
        Trajectory,
    )

__all__ = [
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

__version__ = "0.1.0"

_WHERE = {
    "AgentTrainer": "rllm.trainer.agent_trainer",
    "evaluate": "rllm.eval.run",
    "evaluator": "rllm.engine.functions",
    "rollout": "rllm.engine.functions",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_WHERE.get(name, "rllm.types")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
