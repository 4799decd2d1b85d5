import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rllm.trainer.agent_trainer import AgentTrainer

FOLDER = str(Path(__file__).parent)


@pytest.fixture
def table() -> Iterator[ModuleType]:
    sys.path.insert(0, FOLDER)
    import table_plugin  # type: ignore[import-not-found]  # beside this file, as a user's module would be

    yield table_plugin
    sys.path.remove(FOLDER)


@pytest.fixture
def make_trainer(table: ModuleType, tmp_path: Path) -> Any:
    """An AgentTrainer on the table backend; keywords change its configuration."""

    def make(*, agent: str = "ask", evaluator: str = "digits", observer: Any = None, **changes: Any) -> AgentTrainer:
        config: dict[str, Any] = {
            "model.name": "table",
            "backend.name": "rllm.testing.table:TableBackend",
            "rollout.group_size": 8,
            "rollout.max_tokens": 4,
            "rollout.max_retries": 0,
            "optimizer.lr": 8.0,
            "optimizer.grad_clip": 0.0,
            "trainer.steps": 6,
            "trainer.tasks_per_step": 4,
            "trainer.checkpoint_every": 2,
            "validation.temperature": 1.0,
            **{key.replace("__", "."): value for key, value in changes.items()},
        }
        return AgentTrainer(
            agent_flow=getattr(table, agent),
            evaluator=getattr(table, evaluator),
            train_dataset=table.TASKS,
            val_dataset=[{"id": f"v{i}", "question": "held out"} for i in range(20)],
            config=config,
            observer=observer,
            runs=tmp_path / "runs",
        )

    return make
