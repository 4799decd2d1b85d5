"""From logits to a token: temperature, top-k, top-p, a draw that depends on the request's seed only.

The n-th token of a request uses the n-th number of a counter-based generator (SplitMix64, Steele et al. 2014), so a
sample does not depend on what else is being sampled. A number selects by inversion of the cumulative distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Choice", "Settings", "choose", "uniforms"]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


def uniforms(seeds: NDArray[np.uint64], counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """One number in [0, 1) for each seed and counter, shape [N] each: SplitMix64's output number `counter`."""
    state = _mix(seeds) + (counters.astype(np.uint64) + np.uint64(1)) * _GAMMA
    return (_mix(state) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True, slots=True)
class Settings:
    """How to draw, one entry a row; shape [N] each."""

    temperature: NDArray[np.float32]
    """0 means greedy."""
    top_k: NDArray[np.int64]
    top_p: NDArray[np.float32]
    uniform: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Choice:
    """The drawn ids and their log-probabilities under the distribution drawn from, shape [N] each."""

    ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]


def truncate(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Logits [N, V] with all but the kept tokens at -inf.

    First the `top_k` largest (0: all; ties go to the lower id), then of those the fewest, from the largest down,
    whose renormalised probabilities sum to at least `top_p`.
    """
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logits.shape[-1], device=logits.device)
    limit = torch.where(top_k > 0, top_k, logits.shape[-1])
    ordered = ordered.masked_fill(rank >= limit[:, None], float("-inf"))
    probabilities = ordered.double().softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    dropped = (before >= top_p.double()[:, None]) & (top_p < 1.0)[:, None]
    dropped[:, 0] = False
    kept = ordered.masked_fill(dropped, float("-inf"))
    return torch.empty_like(kept).scatter_(-1, order, kept)


def choose(logits: torch.Tensor, settings: Settings) -> Choice:
    """Draw one token a row from logits [N, V].

    Raises `ValueError` when a row holds NaN, for then there is no distribution.
    """
    device = logits.device
    logits = logits.float()
    sampled = settings.temperature > 0
    if not sampled.all():
        best = logits.argmax(-1)
        greedy_logprobs = logits.log_softmax(-1)
    if sampled.any():
        temperature = torch.from_numpy(np.where(sampled, settings.temperature, 1.0).astype(np.float32)).to(device)
        scaled = logits / temperature[:, None]
        if (settings.top_k > 0).any() or (settings.top_p < 1.0).any():
            top_k = torch.from_numpy(settings.top_k).to(device)
            scaled = truncate(scaled, top_k, torch.from_numpy(settings.top_p).to(device))
        logprobs = scaled.log_softmax(-1)
        cumulative = logprobs.exp().double().cumsum(-1)
        total = cumulative[:, -1]
        aim = torch.from_numpy(settings.uniform).to(device) * total
        aim = torch.minimum(aim, torch.nextafter(total, torch.zeros_like(total)))
        drawn = (cumulative <= aim[:, None]).sum(-1).clamp_(max=logits.shape[-1] - 1)
    if sampled.all():
        ids, table = drawn, logprobs
    elif not sampled.any():
        ids, table = best, greedy_logprobs
    else:
        mask = torch.from_numpy(sampled).to(device)
        ids = torch.where(mask, drawn, best)
        table = torch.where(mask[:, None], logprobs, greedy_logprobs)
    taken = table.gather(-1, ids[:, None])[:, 0]
    found = taken.cpu().numpy()
    if np.isnan(found).any():
        raise ValueError("the model's logits are not finite")
    return Choice(ids.to(torch.int32).cpu().numpy(), found)
