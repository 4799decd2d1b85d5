"""Advantages agree with TRL's own statements, recorded in `trl_reference.json` (see `make_trl_reference.py`).

TRL divides by the sample standard deviation plus 1e-4 where we divide by the population's plus 1e-6; the tests
convert the divisor, which is known exactly, and compare what remains.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rllm.algorithms.estimators import dr_grpo, grpo, is_uniform, reinforce_pp_baseline, rloo

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("trl_reference.json").read_text())["cases"]
NAMES = [case["name"] for case in CASES]


def rewards_of(case: dict[str, Any]) -> list[Any]:
    return [np.array(group, np.float64) for group in case["groups"]]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_without_scaling_it_is_dr_grpo(case: dict[str, Any]) -> None:
    found = np.concatenate(dr_grpo(rewards_of(case), {}))
    assert found == pytest.approx(case["grpo_none"], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_leave_one_out_is_the_same(case: dict[str, Any]) -> None:
    found = np.concatenate(rloo(rewards_of(case), {}))
    assert found == pytest.approx(case["rloo"], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_with_group_scaling_it_is_grpo_with_another_divisor(case: dict[str, Any]) -> None:
    rewards = rewards_of(case)
    factors = [np.full(r.size, 0.0 if is_uniform(r) else (r.std(ddof=1) + 1e-4) / (r.std() + 1e-6)) for r in rewards]
    expected = np.array(case["grpo_group"]) * np.concatenate(factors)
    assert np.concatenate(grpo(rewards, {})) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_with_batch_scaling_and_equal_group_means_it_is_reinforce_pp_baseline() -> None:
    (case,) = [case for case in CASES if case["name"] == "equal means"]
    rewards = rewards_of(case)
    flat = np.concatenate(rewards)
    expected = np.array(case["grpo_batch"]) * (flat.std(ddof=1) + 1e-4) / (flat.std() + 1e-6)
    assert np.concatenate(reinforce_pp_baseline(rewards, {})) == pytest.approx(expected, rel=1e-6, abs=1e-6)
