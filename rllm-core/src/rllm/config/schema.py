"""The configuration of a run. Every key, its type, its bounds and what it means.

Options of plugins (`benchmark.options`, `agent.options`, `backend.options`) are free here; whoever constructs the
plugin refuses those that it does not know. Loading, and messages about faults, are in `loading`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rllm.types import Termination

__all__ = [
    "AgentSection",
    "AlgorithmConfig",
    "BackendSection",
    "EvalBackendSection",
    "EvalBenchmarkSection",
    "EvalConfig",
    "EvalModelSection",
    "FilterConfig",
    "GatewayConfig",
    "ModelSection",
    "OptimizerConfig",
    "RolloutConfig",
    "SamplingConfig",
    "TrainBenchmarkSection",
    "TrainConfig",
    "TrainerConfig",
    "ValidationConfig",
]

Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
TopP = Annotated[float, Field(gt=0, le=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
AtLeastZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Port = Annotated[int, Field(ge=0, le=65535)]
Name = Annotated[str, Field(min_length=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A group of keys: frozen, and a key that it does not list is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class TrainBenchmarkSection(Section):
    """Which tasks to train on, and which to hold out."""

    name: Name | None = None
    """A benchmark, or `module:attribute`. Left out when the tasks are given in Python."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keywords of the benchmark, checked by the benchmark."""
    split: Name = "train"
    """Split that is trained on."""
    limit: Count | None = None
    """Largest number of training tasks; all of them without it."""
    val_split: Name = "test"
    """Split that is held out."""
    val_limit: Count = 200
    """Largest number of held-out tasks."""


class EvalBenchmarkSection(Section):
    """Which tasks to evaluate."""

    name: Name | None = None
    """A benchmark, or `module:attribute`. Left out when the tasks are given in Python."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keywords of the benchmark, checked by the benchmark."""
    split: Name = "test"
    """Split that is evaluated."""


class AgentSection(Section):
    """Which agent program attempts the tasks."""

    name: Name | None = None
    """A harness, or `module:attribute`; the benchmark's default without it."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keywords of the harness, checked by the harness."""


class ModelSection(Section):
    """Which model is trained."""

    name: Name = "embedded"
    """A name that the backend knows, a directory or a hub id."""


class EvalModelSection(Section):
    """Which model answers."""

    name: Name = "embedded"
    """A name that a backend can open, or the server's name for it when `base_url` is given."""
    base_url: Name | None = None
    """An OpenAI-compatible server, such as `https://api.openai.com/v1`; a backend serves the model without it."""
    api_key_env: Name | None = None
    """Environment variable that holds the server's key. The key itself is never part of a configuration."""

    @model_validator(mode="after")
    def _server_needs_a_name(self) -> EvalModelSection:
        if self.base_url is not None and "name" not in self.model_fields_set:
            raise ValueError("base_url is given without a name: say which of the server's models is meant")
        return self


class BackendSection(Section):
    """What trains and samples."""

    name: Name = "local"
    """A backend, or `module:attribute`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keywords of the backend, checked by the backend."""


class EvalBackendSection(Section):
    """What serves the model when there is no `model.base_url`."""

    name: Name | None = None
    """A backend, or `module:attribute`; the one that can open the model without it."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keywords of the backend, checked by the backend."""


class RolloutConfig(Section):
    """How training attempts are made."""

    group_size: Count = 8
    """Attempts at each task; they share a baseline."""
    temperature: AtLeastZero = 1.0
    """Sampling temperature."""
    top_p: TopP = 1.0
    """Nucleus: sample from the most likely tokens that hold this much probability."""
    top_k: NonNegative = 0
    """Sample from this many most likely tokens; 0 means all."""
    max_tokens: Count = 256
    """Largest number of tokens of one reply."""
    concurrency: Count = 256
    """Rollouts that run at the same time."""
    timeout_s: Seconds = 600.0
    """Deadline of one rollout, and again of its grading."""
    max_retries: NonNegative = 2
    """Further tries after an infrastructure error."""
    max_calls: Count | None = None
    """Largest number of model calls in one rollout; no limit without it."""


class ValidationConfig(Section):
    """How the held-out tasks are evaluated during training."""

    every: NonNegative = 0
    """Evaluate after every so many steps; 0 means only before and after."""
    at_start: bool = True
    """Evaluate before the first step."""
    at_end: bool = True
    """Evaluate after the last step."""
    temperature: AtLeastZero = 0.0
    """Sampling temperature; 0 is greedy."""
    max_tokens: Count | None = None
    """Largest number of tokens of one reply; `rollout.max_tokens` without it."""
    attempts: Count = 1
    """Attempts at each task."""


class FilterConfig(Section):
    """Which groups are trained on."""

    drop_uniform: bool = True
    """Drop groups whose rewards are all equal, where the estimator learns only from differences."""
    min_group: Count = 1
    """Drop groups with fewer usable members."""
    drop_terminations: tuple[Termination, ...] = ()
    """Leave out rollouts that ended like this, such as `max_tokens`; the rest of their group stays."""


class AlgorithmConfig(Section):
    """How rewards become updates."""

    estimator: Name = "grpo"
    """An advantage estimator, or `module:attribute`."""
    loss: Name | None = None
    """A loss; the estimator's default without it."""
    aggregation: Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "constant"] | None = None
    """How the loss is summed over tokens and sequences; the estimator's default without it."""
    params: dict[str, Finite] = Field(default_factory=dict)
    """Parameters of the estimator and of the loss, by name; one that neither knows is refused."""
    filter: FilterConfig = Field(default_factory=FilterConfig)
    """Which groups are trained on."""
    kl_coef: AtLeastZero = 0.0
    """Weight of a KL penalty to the initial model in the loss; 0 means none."""


class OptimizerConfig(Section):
    """AdamW and its schedule."""

    lr: AtLeastZero = 1e-5
    """Peak learning rate."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    """Decay of the first and second moment."""
    eps: Positive = 1e-8
    """Added to the root of the second moment."""
    weight_decay: AtLeastZero = 0.0
    """Decoupled weight decay."""
    grad_clip: AtLeastZero = 1.0
    """Largest gradient norm; 0 means no clipping."""
    warmup_steps: NonNegative = 0
    """Steps over which the learning rate rises linearly; the first of them already moves the weights."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Shape of the learning rate after the warm-up."""
    min_lr_ratio: Fraction = 0.0
    """Floor of the decay, relative to `lr`. The last update is above the floor, so never at 0 by accident."""
    minibatches: Count = 1
    """Optimizer updates per step; rows are split between them."""


class TrainerConfig(Section):
    """The loop."""

    steps: Count = 100
    """Steps of rollouts and updates."""
    tasks_per_step: Count = 16
    """Tasks in one step, each attempted `rollout.group_size` times."""
    seed: NonNegative = 0
    """Everything random derives from it."""
    checkpoint_every: NonNegative = 50
    """Save after every so many steps; 0 means only at the end."""
    keep_checkpoints: Count = 2
    """Newest checkpoints that are kept."""
    max_idle_steps: Count = 20
    """Consecutive steps without an informative group after which the run stops with an error."""
    trackers: tuple[Name, ...] = ()
    """Metrics sinks besides the run store."""


class GatewayConfig(Section):
    """The model gateway."""

    host: Name = "127.0.0.1"
    """Address to listen on; anything but loopback lets others reach the model."""
    port: Port = 0
    """Port to listen on; 0 takes a free one."""
    max_inexact: NonNegative | None = None
    """Stop the run once more calls than this had inexact tokens; no limit without it."""


class SamplingConfig(Section):
    """How replies are sampled in an evaluation."""

    temperature: AtLeastZero = 0.0
    """Sampling temperature; 0 is greedy."""
    top_p: TopP = 1.0
    """Nucleus: sample from the most likely tokens that hold this much probability."""
    top_k: NonNegative = 0
    """Sample from this many most likely tokens; 0 means all."""
    max_tokens: Count = 1024
    """Largest number of tokens of one reply."""


class TrainConfig(Section):
    """A training run."""

    benchmark: TrainBenchmarkSection = Field(default_factory=TrainBenchmarkSection)
    """Which tasks to train on, and which to hold out."""
    agent: AgentSection = Field(default_factory=AgentSection)
    """Which agent program attempts the tasks."""
    model: ModelSection = Field(default_factory=ModelSection)
    """Which model is trained."""
    backend: BackendSection = Field(default_factory=BackendSection)
    """What trains and samples."""
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    """How training attempts are made."""
    validation: ValidationConfig = Field(default_factory=ValidationConfig)
    """How the held-out tasks are evaluated during training."""
    algorithm: AlgorithmConfig = Field(default_factory=AlgorithmConfig)
    """How rewards become updates."""
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    """AdamW and its schedule."""
    trainer: TrainerConfig = Field(default_factory=TrainerConfig)
    """The loop."""
    gateway: GatewayConfig = Field(default_factory=GatewayConfig)
    """The model gateway."""


class EvalConfig(Section):
    """An evaluation run."""

    benchmark: EvalBenchmarkSection = Field(default_factory=EvalBenchmarkSection)
    """Which tasks to evaluate."""
    agent: AgentSection = Field(default_factory=AgentSection)
    """Which agent program attempts the tasks."""
    model: EvalModelSection = Field(default_factory=EvalModelSection)
    """Which model answers."""
    backend: EvalBackendSection = Field(default_factory=EvalBackendSection)
    """What serves the model when there is no `model.base_url`."""
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    """How replies are sampled."""
    gateway: GatewayConfig = Field(default_factory=GatewayConfig)
    """The model gateway."""
    attempts: Count = 1
    """Attempts at each task."""
    concurrency: Count = 256
    """Rollouts that run at the same time."""
    timeout_s: Seconds = 600.0
    """Deadline of one rollout, and again of its grading."""
    max_retries: NonNegative = 2
    """Further tries after an infrastructure error."""
    max_calls: Count | None = None
    """Largest number of model calls in one rollout; no limit without it."""
    limit: Count | None = None
    """Largest number of tasks; all of them without it."""
    tasks: tuple[str, ...] = ()
    """Ids of the only tasks to attempt; all of them without it."""
    seed: NonNegative = 0
    """Everything random derives from it."""
