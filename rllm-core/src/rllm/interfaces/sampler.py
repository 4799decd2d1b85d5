"""Token sampling: ids in, ids with log-probabilities and weight versions out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rllm.types import FinishReason

__all__ = ["DeltaListener", "Sample", "Sampler", "SamplingParams"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample one reply."""

    max_tokens: int
    """At least 1. Prompt and reply together must fit in the context."""
    temperature: float = 1.0
    """0 means greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 means all."""
    stop: tuple[str, ...] = ()
    """Sampling ends once the decoded reply contains one of these; the tokens so far are all returned."""
    stop_ids: tuple[int, ...] = ()
    """Sampling ends with one of these ids, which is returned as the last token."""
    seed: int | None = None
    """Fixes the sample whatever else is being sampled at the same time; None draws a fresh one."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sampled reply of T tokens."""

    ids: NDArray[np.int32]
    """Shape [T], the stop id included when one ended it."""
    logprobs: NDArray[np.float32]
    """Shape [T]: log-probabilities of the distribution that was sampled from, after temperature, top-k and top-p.
    For a greedy sample: of the model's own distribution at temperature 1."""
    versions: NDArray[np.int32]
    """Shape [T]: weight version that sampled each token."""
    finish_reason: FinishReason
    """STOP, LENGTH or ABORT."""


DeltaListener = Callable[[NDArray[np.int32]], None]
"""Told, in the event loop, of new ids as they are sampled; their concatenation is `Sample.ids`."""


class Sampler(Protocol):
    """Serves many concurrent requests from one set of published weights."""

    @property
    def context_length(self) -> int:
        """Largest number of tokens of prompt and reply together."""
        ...

    async def sample(
        self, prompt_ids: NDArray[np.int32], params: SamplingParams, *, on_delta: DeltaListener | None = None
    ) -> Sample:
        """Sample one reply to `prompt_ids`, shape [P], P >= 1.

        Cancelling the call frees what it held. Raises `ContextOverflow` when P + 1 tokens do not fit (a larger
        `max_tokens` is cut to what fits and ends with LENGTH), `BackendError` when the sampler is broken.
        """
        ...
