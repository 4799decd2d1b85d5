from collections.abc import Callable
from typing import Any

import pytest

from rllm.config.loading import load_eval_config
from rllm.config.schema import EvalConfig

Configure = Callable[..., EvalConfig]


@pytest.fixture
def configure() -> Configure:
    """An EvalConfig for the table backend; keywords change its keys, with `__` for the dot."""

    def make(**changes: Any) -> EvalConfig:
        given = {
            "model.name": "table",
            "backend.name": "rllm.testing.table:TableBackend",
            "sampling.temperature": 1.0,
            "sampling.max_tokens": 6,
            "concurrency": 4,
            "max_retries": 0,
        }
        given |= {key.replace("__", "."): value for key, value in changes.items()}
        return load_eval_config(None, (), given).config

    return make


@pytest.fixture(autouse=True)
def _home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLLM_HOME", str(tmp_path / "home"))
