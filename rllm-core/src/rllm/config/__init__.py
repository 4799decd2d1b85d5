"""What a run is asked to do: the schema, how it is loaded, where each value came from, and the environment."""

from __future__ import annotations

from rllm.config.explain import ExplainRow, explain
from rllm.config.loading import (
    Loaded,
    Source,
    config_from_mapping,
    config_to_json,
    config_to_yaml,
    load_eval_config,
    load_train_config,
)
from rllm.config.schema import EvalConfig, TrainConfig

__all__ = [
    "EvalConfig",
    "ExplainRow",
    "Loaded",
    "Source",
    "TrainConfig",
    "config_from_mapping",
    "config_to_json",
    "config_to_yaml",
    "explain",
    "load_eval_config",
    "load_train_config",
]
