"""A training backend: owns the model's weights, samples from them and updates them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rllm.interfaces.sampler import Sampler

__all__ = ["Backend", "Capabilities", "LossSpec", "ModelInfo", "OptimizerSpec", "Row", "StepResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend can honour. The trainer refuses a configuration that asks for anything else."""

    losses: frozenset[str] = frozenset()
    aggregations: frozenset[str] = frozenset()
    per_token_advantages: bool = False
    kl: bool = False
    """A KL penalty to the initial weights inside the loss."""
    lora: bool = False
    full: bool = False
    forward_only: bool = False
    """`logprobs` works."""
    deterministic: bool = False
    """The same seed gives the same parameters, bit for bit."""
    schedules: frozenset[str] = frozenset({"constant"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What `open` found out about the model."""

    name: str
    """As the user wrote it."""
    tokenizer_dir: Path
    """A directory with `tokenizer.json`, `tokenizer_config.json` and possibly `chat_template.jinja`."""
    context_length: int
    parameters: int
    trainable_parameters: int
    device: str
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One training sequence of L tokens. Every array has shape [L] and the same alignment: entry i is about token i.

    Entries where `mask` is 0 are context: their advantage and log-probability are 0 and have no effect.
    """

    ids: NDArray[np.int32]
    mask: NDArray[np.uint8]
    """1 on tokens that the policy sampled and that are trained on; never on token 0."""
    advantages: NDArray[np.float32]
    logprobs: NDArray[np.float32]
    """Of the behaviour policy, at sampling time."""
    versions: NDArray[np.int32]
    """Weight version that sampled the token; -1 on context."""
    ref_logprobs: NDArray[np.float32] | None = None
    """Of a reference policy or teacher, when the loss needs it."""
    temperature: float = 1.0
    """Temperature of the behaviour policy; the learner's log-probabilities are taken at the same one."""
    episode_id: str = ""
    weight: float = 1.0
    """Multiplies the row's loss."""

    def __post_init__(self) -> None:
        size = self.ids.size
        for name in ("mask", "advantages", "logprobs", "versions"):
            if getattr(self, name).shape != (size,):
                raise ValueError(f"row: {name} has shape {getattr(self, name).shape}, ids has ({size},)")
        if self.ref_logprobs is not None and self.ref_logprobs.shape != (size,):
            raise ValueError(f"row: ref_logprobs has shape {self.ref_logprobs.shape}, ids has ({size},)")
        if size and self.mask[0]:
            raise ValueError("row: token 0 has nothing before it and cannot be trained on")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSpec:
    """Which loss, and its parameters. See `rllm.algorithms.losses` for the formulas."""

    name: str
    aggregation: str = "token-mean"
    """token-mean, seq-mean-token-sum, seq-mean-token-mean, or constant, whose parameter is `horizon`; the formulas are
    in `rllm.algorithms.losses.AGGREGATIONS`."""
    params: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSpec:
    """AdamW for one step; the learning rate is the scheduled one."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    """Largest gradient norm; 0 means no clipping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one optimizer step did."""

    loss: float
    grad_norm: float
    """Before clipping."""
    tokens: int
    """Trained tokens (mask 1)."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """At least `entropy` (mean over trained tokens), `kl_behaviour` (k3 estimate to the behaviour policy),
    `clip_fraction` where the loss clips."""


class Backend(Protocol):
    """Calls are serialised by the trainer: at most one of step, logprobs, publish, save and load at a time."""

    @property
    def capabilities(self) -> Capabilities:
        """Known before `open`."""
        ...

    async def open(self, *, model: str, seed: int, trainable: bool = True) -> ModelInfo:
        """Load the model. Raises `ModelError` when it cannot be found or used. Version 0 is published."""
        ...

    @property
    def sampler(self) -> Sampler:
        """Samples from the published weights; valid between `open` and `close`."""
        ...

    @property
    def version(self) -> int:
        """The published weight version."""
        ...

    async def step(self, rows: Sequence[Row], loss: LossSpec, optimizer: OptimizerSpec) -> StepResult:
        """One optimizer step on all rows; gradients do not depend on how they are split into micro-batches.

        Raises `BackendError` on a non-finite loss or gradient; the weights are then as before.
        """
        ...

    async def logprobs(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        """Log-probability of each token given those before it, shape [L] each (entry 0 is 0). Forward only."""
        ...

    async def publish(self) -> int:
        """Make the sampler use the current weights; returns the new version, which is the old one plus 1."""
        ...

    async def save(self, path: Path) -> None:
        """Write everything that training needs to go on (weights, optimizer, version) into the new folder `path`.

        `path / "model"` is then a directory that `open(model=…)` accepts.
        """
        ...

    async def load(self, path: Path) -> None:
        """Restore what `save` wrote, bit for bit, and publish it under the saved version."""
        ...

    async def close(self) -> None:
        """Free everything; idempotent, also after a failed `open`."""
        ...
