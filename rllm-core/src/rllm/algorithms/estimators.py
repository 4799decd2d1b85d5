r"""Advantage estimators: grouped rewards in, grouped advantages out. One function a formula.

Notation: group g holds rewards r_1 … r_n of n attempts at one task; mean_g and std_g are its mean and its
population standard deviation (divisor n). Means are correctly rounded (`math.fsum`), so a result depends on the
order of neither the groups nor their members.

Rewards that differ only by rounding are equal: a spread of at most `UNIFORM_ULPS` units in the last place of the
largest reward counts as zero variance, and gives advantages of exactly 0. Without that, two ways of adding 0.1 and
0.2 would become advantages of ±1 once divided by their standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["dr_grpo", "grpo", "is_uniform", "reinforce", "reinforce_pp_baseline", "rloo"]

Rewards = Sequence[NDArray[np.float64]]
Advantages = list[NDArray[np.float64]]

UNIFORM_ULPS = 8
"""Spread, in units in the last place of the largest reward, that rounding explains."""
EPS = 1e-6
"""Default of the parameter `eps`, which is added to the standard deviation."""


def is_uniform(rewards: NDArray[np.float64]) -> bool:
    """Whether the rewards, shape [n], are equal up to rounding; true for n <= 1."""
    if rewards.size <= 1:
        return True
    spread = rewards.max() - rewards.min()
    return bool(spread <= UNIFORM_ULPS * np.spacing(np.abs(rewards).max()))


def grpo(rewards: Rewards, params: Mapping[str, float]) -> Advantages:
    """A_i = (r_i - mean_g) / (std_g + eps), with the population standard deviation and eps = 1e-6.

    Groups of one, and groups of equal rewards, get 0. Shao et al. 2024, DeepSeekMath (arXiv:2402.03300), section
    4.1.2, which leaves the divisor open; TRL divides by the sample standard deviation (divisor n - 1) plus 1e-4.
    """
    eps = params.get("eps", EPS)
    advantages = []
    for r in rewards:
        centred = _centred(r)
        advantages.append(centred / (_root_mean_square([centred]) + eps))
    return advantages


def dr_grpo(rewards: Rewards, params: Mapping[str, float]) -> Advantages:
    """A_i = r_i - mean_g. Groups of one, and groups of equal rewards, get 0.

    Liu et al. 2025, Understanding R1-Zero-Like Training (arXiv:2503.20783), section 3.2: without the division by
    the standard deviation, which favours tasks that are nearly always or nearly never solved. The paper also sums
    the loss over tokens and divides by a constant instead of the length, hence the aggregation `constant`.
    """
    return [_centred(r) for r in rewards]


def rloo(rewards: Rewards, params: Mapping[str, float]) -> Advantages:
    """A_i = r_i - mean of the other n - 1 rewards = n / (n - 1) · (r_i - mean_g). Groups of one get 0.

    Ahmadian et al. 2024, Back to Basics (arXiv:2402.14740), equation 8; Kool et al. 2019.
    """
    return [_centred(r) * (r.size / (r.size - 1)) if r.size > 1 else np.zeros(r.size) for r in rewards]


def reinforce(rewards: Rewards, params: Mapping[str, float]) -> Advantages:
    """A_i = r_i: no baseline. Williams 1992."""
    return [r.astype(np.float64, copy=True) for r in rewards]


def reinforce_pp_baseline(rewards: Rewards, params: Mapping[str, float]) -> Advantages:
    """c_i = r_i - mean_g, then A_i = c_i / (std of all c in the batch + eps), population std, eps = 1e-6.

    Each group is centred by its own mean, so the mean over the batch is 0 and is not subtracted again; groups of one
    have c = 0 and count in the batch's standard deviation. Hu et al. 2025, REINFORCE++ (arXiv:2501.03262), the
    variant with a group baseline; verl's weights each sequence by its length, which rewards do not know.
    """
    centred = [_centred(r) for r in rewards]
    scale = _root_mean_square(centred) + params.get("eps", EPS)
    return [c / scale for c in centred]


def _centred(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """r - mean, exactly 0 where nothing but rounding sets the rewards apart."""
    if is_uniform(rewards):
        return np.zeros(rewards.size)
    return rewards - math.fsum(rewards) / rewards.size


def _root_mean_square(centred: Sequence[NDArray[np.float64]]) -> float:
    """Population standard deviation of values whose mean is 0."""
    size = sum(c.size for c in centred)
    return math.sqrt(math.fsum(float(x) for c in centred for x in c * c) / size) if size else 0.0
