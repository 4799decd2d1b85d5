"""The estimators that rllm ships, announced like anybody's. Importing this imports no numerics."""

from __future__ import annotations

from rllm.interfaces.spec import AlgorithmSpec

__all__ = ["ALGORITHMS"]

_WHERE = "rllm.algorithms.estimators"

ALGORITHMS: tuple[AlgorithmSpec, ...] = (
    AlgorithmSpec(
        name="grpo",
        summary="Reward minus the group's mean, divided by its standard deviation",
        target=f"{_WHERE}:grpo",
        aggregation="seq-mean-token-mean",
        params=("eps",),
        paper="Shao et al. 2024, arXiv:2402.03300",
    ),
    AlgorithmSpec(
        name="dr_grpo",
        summary="Reward minus the group's mean; no bias towards easy, hard or short",
        target=f"{_WHERE}:dr_grpo",
        aggregation="constant",
        paper="Liu et al. 2025, arXiv:2503.20783",
    ),
    AlgorithmSpec(
        name="rloo",
        summary="Reward minus the mean of the others in the group",
        target=f"{_WHERE}:rloo",
        aggregation="seq-mean-token-sum",
        paper="Ahmadian et al. 2024, arXiv:2402.14740",
    ),
    AlgorithmSpec(
        name="reinforce",
        summary="The reward itself; needs no group",
        target=f"{_WHERE}:reinforce",
        aggregation="seq-mean-token-sum",
        needs_group=False,
        paper="Williams 1992",
    ),
    AlgorithmSpec(
        name="reinforce_pp_baseline",
        summary="Reward minus the group's mean, divided by the standard deviation over the batch",
        target=f"{_WHERE}:reinforce_pp_baseline",
        aggregation="token-mean",
        params=("eps",),
        paper="Hu et al. 2025, arXiv:2501.03262",
    ),
)
"""In the order in which they are listed to people."""
