"""The training loop: rollouts, groups, advantages, rows, step, publish. `AgentTrainer` is its front door."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllm.trainer.agent_trainer import AgentTrainer, TrainResult

__all__ = ["AgentTrainer", "TrainResult"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from rllm.trainer import agent_trainer

        return getattr(agent_trainer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
