"""What is announced exists, and agrees with the catalogue of losses and with the schema."""

from __future__ import annotations

import importlib
import subprocess
import sys
import typing

import numpy as np

from rllm.algorithms.losses import AGGREGATIONS, LOSSES
from rllm.algorithms.schedules import SCHEDULES
from rllm.algorithms.specs import ALGORITHMS
from rllm.config.schema import AlgorithmConfig, OptimizerConfig


def test_every_target_is_an_estimator() -> None:
    for spec in ALGORITHMS:
        module, _, name = spec.target.partition(":")
        estimate = getattr(importlib.import_module(module), name)
        (advantages,) = estimate([np.array([0.0, 1.0])], {})
        assert advantages.shape == (2,)
        assert spec.paper
        assert name == spec.name


def test_needs_group_tells_whether_one_rollout_teaches_anything() -> None:
    for spec in ALGORITHMS:
        module, _, name = spec.target.partition(":")
        (advantages,) = getattr(importlib.import_module(module), name)([np.array([0.5])], {})
        assert bool(advantages[0] == 0) is spec.needs_group


def test_defaults_are_in_the_catalogue() -> None:
    for spec in ALGORITHMS:
        assert spec.loss in LOSSES
        assert spec.aggregation in AGGREGATIONS


def test_the_schema_offers_exactly_the_catalogue() -> None:
    aggregations = typing.get_args(AlgorithmConfig.model_fields["aggregation"].annotation)[0]
    assert set(typing.get_args(aggregations)) == set(AGGREGATIONS)
    assert set(typing.get_args(OptimizerConfig.model_fields["schedule"].annotation)) == set(SCHEDULES)


def test_losses_say_what_they_compute() -> None:
    for name, loss in LOSSES.items():
        assert loss.name == name
        assert loss.formula.startswith("l = ")
        assert all(param in loss.formula for param in loss.params)


def test_announcing_imports_no_numerics() -> None:
    code = "import sys; import rllm.algorithms.specs; print('numpy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
