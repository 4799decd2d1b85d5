"""The losses of the learner, per trained token, and what a token weighs in the sum.

Every function works on vectors of the N trained tokens of a micro-batch; masked tokens are never gathered, so what
stands in them cannot matter. Notation as in `rllm.algorithms.losses`: logp under the weights being trained, logq
when sampled, A the advantage, ratio = exp(logp - logq). Differences of log-probabilities are cut to ±20 before they
are exponentiated (a ratio of 5e8 carries no information, and an infinite one destroys the weights).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rllm.errors import ConfigError
from rllm.interfaces.backend import LossSpec, Row

__all__ = ["AGGREGATIONS", "LOSSES", "Tokens", "k3", "row_token_weights", "token_losses"]

_LARGEST_DIFFERENCE = 20.0


@dataclass(frozen=True, slots=True)
class Tokens:
    """The trained tokens of a micro-batch, shape [N] each."""

    logp: torch.Tensor
    logq: torch.Tensor
    advantage: torch.Tensor
    logref: torch.Tensor | None = None

    @property
    def difference(self) -> torch.Tensor:
        """logp - logq, cut to ±20."""
        return (self.logp - self.logq).clamp(-_LARGEST_DIFFERENCE, _LARGEST_DIFFERENCE)


def k3(difference: torch.Tensor) -> torch.Tensor:
    """exp(d) - d - 1 with d = logref - logp: Schulman's estimate of KL(p || ref); finite with finite gradient."""
    return difference.clamp(max=_LARGEST_DIFFERENCE).exp() - difference - 1


def _policy_gradient(tokens: Tokens, params: Mapping[str, float]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """-A · logp (Williams 1992)."""
    return -tokens.advantage * tokens.logp, None


def _importance_sampling(tokens: Tokens, params: Mapping[str, float]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """-A · ratio."""
    return -tokens.advantage * tokens.difference.exp(), None


def _ppo_clip(tokens: Tokens, params: Mapping[str, float]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """-min(ratio · A, clip(ratio, 1 - clip_low, 1 + clip_high) · A) (Schulman et al. 2017, arXiv:1707.06347).

    With `dual_clip` c > 1: where A < 0, at most -c · A (Ye et al. 2020, arXiv:1912.09729).
    """
    ratio = tokens.difference.exp()
    low, high = params.get("clip_low", 0.2), params.get("clip_high", 0.2)
    free = ratio * tokens.advantage
    bounded = ratio.clamp(1 - low, 1 + high) * tokens.advantage
    loss = -torch.minimum(free, bounded)
    dual = params.get("dual_clip", 0.0)
    if dual:
        loss = torch.where(tokens.advantage < 0, torch.minimum(loss, -dual * tokens.advantage), loss)
    return loss, (bounded < free).detach()


def _cross_entropy(tokens: Tokens, params: Mapping[str, float]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """-logp."""
    return -tokens.logp, None


_Loss = Callable[[Tokens, Mapping[str, float]], tuple[torch.Tensor, torch.Tensor | None]]
LOSSES: Mapping[str, _Loss] = {
    "cross_entropy": _cross_entropy,
    "importance_sampling": _importance_sampling,
    "policy_gradient": _policy_gradient,
    "ppo_clip": _ppo_clip,
}
AGGREGATIONS = ("constant", "seq-mean-token-mean", "seq-mean-token-sum", "token-mean")
_PARAMS = {
    "ppo_clip": {"clip_low", "clip_high", "dual_clip"},
}
_PARAMS_OF_ALL = {"kl_coef", "horizon"}


def token_losses(tokens: Tokens, spec: LossSpec) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Loss of each token, and where it was clipped (None: this loss does not clip).

    With `kl_coef` > 0, kl_coef · k3(logref - logp) is added.
    """
    loss, clipped = LOSSES[spec.name](tokens, spec.params)
    coefficient = spec.params.get("kl_coef", 0.0)
    if coefficient and tokens.logref is not None:
        loss = loss + coefficient * k3(tokens.logref - tokens.logp)
    return loss, clipped


def check(spec: LossSpec) -> None:
    """Raises `ConfigError` for a loss, aggregation or parameter that is not here."""
    faults = []
    if spec.name not in LOSSES:
        faults.append(f"the local backend has no loss {spec.name!r}; it has {', '.join(sorted(LOSSES))}")
    if spec.aggregation not in AGGREGATIONS:
        faults.append(f"the local backend has no aggregation {spec.aggregation!r}; it has {', '.join(AGGREGATIONS)}")
    unknown = sorted(set(spec.params) - _PARAMS.get(spec.name, set()) - _PARAMS_OF_ALL)
    if unknown:
        known = ", ".join(sorted(_PARAMS.get(spec.name, set()) | _PARAMS_OF_ALL))
        faults.append(f"the loss {spec.name!r} has no parameter {unknown[0]!r}; it has {known}")
    if spec.aggregation == "constant" and not spec.params.get("horizon", 0.0) > 0:
        faults.append("the aggregation 'constant' needs the loss parameter 'horizon', the longest reply allowed")
    if faults:
        raise ConfigError(*faults)


def row_token_weights(rows: Sequence[Row], spec: LossSpec) -> NDArray[np.float64]:
    """What each trained token of a row weighs in the loss of the step, shape [rows].

        token-mean            w_i / (trained tokens of all rows)
        seq-mean-token-sum    w_i / N                                    N: rows with a trained token
        seq-mean-token-mean   w_i / (N · trained tokens of the row)
        constant              w_i / (N · `horizon`)

    These depend on the whole step, so micro-batches only ever add up.
    """
    counts = np.array([int(np.count_nonzero(row.mask)) for row in rows], np.float64)
    weights: NDArray[np.float64] = np.array([row.weight for row in rows], np.float64)
    present = max(1.0, float(np.count_nonzero(counts)))
    match spec.aggregation:
        case "token-mean":
            divisor = max(1.0, float(counts.sum()))
        case "seq-mean-token-sum":
            divisor = present
        case "seq-mean-token-mean":
            weights = weights / np.maximum(counts, 1)
            divisor = present
        case _:
            divisor = present * spec.params["horizon"]
    scaled: NDArray[np.float64] = weights / divisor
    return scaled
