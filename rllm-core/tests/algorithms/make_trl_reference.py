"""Writes `trl_reference.json`: advantages as TRL's own statements compute them, for `test_against_trl`.

Run by hand where TRL is installed (`python make_trl_reference.py`). TRL computes advantages in the middle of a long
method, so the statements are cut out of its source and executed on our rewards; nothing is retyped.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import trl
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer
from trl.trainer.utils import nanstd

GROUPS: dict[str, list[list[float]]] = {
    "binary": [[1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 0, 1]],
    "uniform": [[1, 1, 1], [0, 0, 0], [0.1, 0.1, 0.1]],
    "graded": [[0.25, 0.5, -1.0, 3.0, 0.0], [10, 11, 12, 13, 14], [-0.3, 0.7, 0.7, -0.3, 0.2]],
    "pairs": [[0, 1], [1, 0], [5, 5]],
    "large": [[1e6, 1e6 + 1, 1e6 + 3], [-1e6, 1e6, 0]],
    "equal means": [[0, 2, 1], [1, 1, 1], [-1, 3, 1]],
}


def _body(method: Any) -> list[ast.stmt]:
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(method))).body
    assert isinstance(function, ast.FunctionDef)
    return function.body


def _run(statements: list[ast.stmt], names: dict[str, Any]) -> list[float]:
    module = ast.Module(body=statements, type_ignores=[])
    exec(compile(ast.fix_missing_locations(module), "trl", "exec"), names)
    return [float(value) for value in names["advantages"]]


def grpo(rewards: torch.Tensor, size: int, scale_rewards: str) -> list[float]:
    """The branch `multi_objective_aggregation == "sum_then_normalize"` with one reward function of weight 1."""
    (branch,) = [
        each
        for each in _body(GRPOTrainer._generate_and_score_completions)
        if isinstance(each, ast.If) and "sum_then_normalize" in ast.unparse(each.test)
    ]
    weights = torch.ones(1, dtype=torch.float64)
    names = {
        "torch": torch,
        "nanstd": nanstd,
        "self": SimpleNamespace(scale_rewards=scale_rewards, reward_weights=weights),
        "rewards_per_func": rewards.unsqueeze(1),
        "unscorable_mask": torch.zeros(rewards.numel(), dtype=torch.bool),
        "num_generations": size,
        "device": "cpu",
    }
    return _run(branch.body, names)


def rloo(rewards: torch.Tensor, size: int) -> list[float]:
    """From the grouping of the rewards to the end of the advantages, without normalisation."""
    body = _body(RLOOTrainer._generate_and_score_completions)
    start = next(i for i, each in enumerate(body) if ast.unparse(each).startswith("grouped_rewards ="))
    stop = next(i for i, each in enumerate(body) if ast.unparse(each).startswith("advantages = torch.nan_to_num"))
    names = {
        "torch": torch,
        "nanstd": nanstd,
        "self": SimpleNamespace(normalize_advantages=False),
        "rewards": rewards,
        "num_generations": size,
    }
    return _run(body[start : stop + 1], names)


def main() -> None:
    """Write the file beside this one."""
    cases = []
    for name, groups in GROUPS.items():
        size = len(groups[0])
        rewards = torch.tensor(groups, dtype=torch.float64).flatten()
        cases.append(
            {
                "name": name,
                "groups": groups,
                "grpo_group": grpo(rewards, size, "group"),
                "grpo_none": grpo(rewards, size, "none"),
                "grpo_batch": grpo(rewards, size, "batch"),
                "rloo": rloo(rewards, size),
            }
        )
    data = {"trl": trl.__version__, "cases": cases}
    Path(__file__).with_name("trl_reference.json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
