"""What each loss means: names, parameters and formulas, as data. Backends compute them.

A backend that lists a loss among its capabilities promises this formula. Notation, for token t of row i:

    logp     log-probability under the weights being trained, at the row's temperature
    logq     log-probability when the token was sampled (`Row.logprobs`)
    ratio    exp(logp - logq)
    A        advantage (`Row.advantages`)
    mask     1 on tokens that are trained on; all others have neither value nor gradient
    w_i      `Row.weight`

A loss gives l[i, t]; an aggregation makes it one number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["AGGREGATIONS", "LOSSES", "Loss"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One loss."""

    name: str
    formula: str
    """Per token, in the notation of this module."""
    summary: str
    paper: str = ""
    params: Mapping[str, float] = field(default_factory=dict)
    """Parameter -> default."""
    on_policy_only: bool = False
    """Ignores how far the weights have moved since the tokens were sampled."""


def _table(*losses: Loss) -> Mapping[str, Loss]:
    return MappingProxyType({loss.name: loss for loss in losses})


LOSSES: Mapping[str, Loss] = _table(
    Loss(
        name="policy_gradient",
        formula="l = -A * logp",
        summary="The score-function gradient; right for one update on fresh rollouts.",
        paper="Williams 1992, Simple statistical gradient-following algorithms",
        on_policy_only=True,
    ),
    Loss(
        name="importance_sampling",
        formula="l = -A * ratio",
        summary="Unbiased off-policy; its variance grows with the distance between the policies.",
        paper="Degris et al. 2012, Off-policy actor-critic",
    ),
    Loss(
        name="ppo_clip",
        formula="l = -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A); where A < 0 and dual_clip > 1, "
        "at most -dual_clip * A",
        summary="No gradient once an update has moved a token's probability far enough. Set clip_high above clip_low "
        "for DAPO's clip-higher.",
        paper="Schulman et al. 2017, arXiv:1707.06347; Ye et al. 2020, arXiv:1912.09729 (dual clip); Yu et al. 2025, "
        "arXiv:2503.14476 (clip-higher)",
        params=MappingProxyType({"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 0.0}),
    ),
    Loss(
        name="cross_entropy",
        formula="l = -logp",
        summary="Supervised: raises the probability of every trained token; advantages are ignored.",
    ),
)
"""Name -> loss. With `algorithm.kl_coef` > 0, kl_coef * (exp(d) - d - 1), d = logref - logp, is added to l (the k3
estimate of the KL divergence to the initial weights, Schulman 2020)."""

AGGREGATIONS: Mapping[str, str] = MappingProxyType(
    {
        "token-mean": "sum_i w_i sum_t mask l / sum_i sum_t mask: each token weighs the same (DAPO)",
        "seq-mean-token-sum": "(1/N) sum_i w_i sum_t mask l: N rows",
        "seq-mean-token-mean": "(1/N) sum_i w_i (sum_t mask l / sum_t mask): each row weighs the same (GRPO)",
        "constant": "(1/N) sum_i w_i (sum_t mask l / H): H = `horizon`, the longest reply that is allowed, whatever "
        "the lengths of the replies (Dr. GRPO); the trainer sets it to rollout.max_tokens",
    }
)
"""Aggregation -> formula. The denominators are those of the whole step, whatever the micro-batches."""
