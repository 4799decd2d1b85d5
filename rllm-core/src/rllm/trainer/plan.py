"""Resolve a training configuration into things that work together, or say everything that does not.

Every fault is collected before the first rollout, and all are reported at once. `explain` lists what the chosen
backend was asked for and whether it can do it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllm import plugins
from rllm.algorithms.filters import Filters
from rllm.algorithms.losses import LOSSES
from rllm.config.schema import TrainConfig
from rllm.engine.functions import as_grader, as_harness
from rllm.engine.rollout import Program
from rllm.engine.source import construct, construct_agent
from rllm.errors import ConfigError, DataError, GradingError, RllmError, boundary
from rllm.interfaces.algorithm import Estimator
from rllm.interfaces.backend import Backend, Capabilities, LossSpec, ModelInfo
from rllm.interfaces.benchmark import Benchmark
from rllm.interfaces.spec import AlgorithmSpec, BenchmarkSpec, HarnessSpec
from rllm.interfaces.tracker import Tracker
from rllm.tasks.rows import check_ids, tasks_from
from rllm.types import JsonDict, Task

__all__ = ["Plan", "Requirement", "Sources", "faults_and_requirements", "make_plan"]


@dataclass(frozen=True, slots=True)
class Sources:
    """What was handed over in Python instead of by name."""

    agent_flow: Any = None
    evaluator: Any = None
    train_dataset: Any = None
    val_dataset: Any = None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that the configuration asks of the backend."""

    key: str
    wanted: str
    supported: bool
    offer: str
    """What the backend can do instead."""


@dataclass(slots=True)
class Plan:
    """A training run, resolved."""

    config: TrainConfig
    program: Program
    train_tasks: list[Task]
    val_tasks: list[Task]
    backend: Backend
    estimator: Estimator
    loss: LossSpec
    filters: Filters
    estimator_params: Mapping[str, float]
    trackers: list[Tracker] = field(default_factory=list)
    title: str = ""
    data_revision: str = ""
    requirements: list[Requirement] = field(default_factory=list)

    @property
    def train_sampling(self) -> JsonDict:
        """Parameters that the gateway enforces on training rollouts."""
        rollout = self.config.rollout
        return {
            "temperature": rollout.temperature,
            "top_p": rollout.top_p,
            "top_k": rollout.top_k,
            "max_tokens": rollout.max_tokens,
        }

    @property
    def validation_sampling(self) -> JsonDict:
        """Parameters that the gateway enforces on validation rollouts."""
        validation = self.config.validation
        return {
            "temperature": validation.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "max_tokens": validation.max_tokens or self.config.rollout.max_tokens,
        }

    def estimate(self, rewards_G: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        """Advantages of grouped rewards; an estimator that raises or misbehaves is named."""
        who = f"algorithm {self.config.algorithm.estimator!r}"
        with boundary(GradingError, who):
            advantages = self.estimator(rewards_G, self.estimator_params)
        if [a.shape for a in advantages] != [r.shape for r in rewards_G]:
            raise GradingError(f"{who} returned advantages of other shapes than the rewards")
        if not all(np.isfinite(a).all() for a in advantages):
            raise GradingError(f"{who} returned advantages that are not finite")
        return advantages

    def check_model(self, info: ModelInfo) -> None:
        """Refuse what only the opened model can tell."""
        longest = max(self.config.rollout.max_tokens, self.config.validation.max_tokens or 0)
        if longest >= info.context_length:
            raise ConfigError(
                f"rollout.max_tokens is {longest}, but the context of {info.name!r} is "
                f"{info.context_length} tokens, which must also hold the prompt"
            )


class _Faults:
    """Collects every fault of a configuration."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, fault: str) -> None:
        if fault not in self.found:
            self.found.append(fault)

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Whatever is raised inside the block becomes a fault, and the rest of it is left out."""
        try:
            yield
        except ConfigError as error:
            for fault in error.faults:
                self.add(fault)
        except RllmError as error:
            self.add(str(error))
        except TypeError as error:
            self.add(str(error))

    def attempt(self, function: Callable[[], Any]) -> Any:
        """The function's result, or None when it failed and the fault was collected."""
        result = None
        with self.collected():
            result = function()
        return result  # noqa: RET504 - the block above may have been left early


def make_plan(config: TrainConfig, sources: Sources | None = None) -> Plan:
    """Resolve `config`. Raises ConfigError with every fault that can be known without opening the model."""
    plan, faults = _resolve(config, sources or Sources())
    if faults:
        raise ConfigError(*faults)
    return plan


def faults_and_requirements(config: TrainConfig) -> tuple[tuple[str, ...], list[Requirement]]:
    """Every fault of `config`, and what it asks of the backend, possible or not."""
    plan, faults = _resolve(config, Sources())
    return faults, plan.requirements


def _resolve(config: TrainConfig, sources: Sources) -> tuple[Plan, tuple[str, ...]]:
    """The plan, which is only fit for use when there are no faults."""
    faults = _Faults()
    benchmark, bench_spec = _benchmark(config, sources, faults)
    train_tasks, val_tasks = _tasks(config, sources, benchmark, faults)
    program = _program(config, sources, benchmark, bench_spec, faults)
    spec = faults.attempt(lambda: plugins.registry("algorithm").spec(config.algorithm.estimator))
    estimator = faults.attempt(lambda: plugins.registry("algorithm").load(config.algorithm.estimator))
    backend = faults.attempt(lambda: construct("backend", config.backend.name, config.backend.options))
    trackers = [faults.attempt(partial(construct, "tracker", name, {})) for name in config.trainer.trackers]
    loss, estimator_params = _loss(config, spec, faults)
    requirements: list[Requirement] = []
    if backend is not None:
        requirements = _requirements(config, backend.capabilities, loss)
        for each in requirements:
            if not each.supported and (each.key != "algorithm.loss" or loss.name in LOSSES):
                faults.add(
                    f"{each.key}={each.wanted} is not possible with backend {config.backend.name!r}, "
                    f"which offers {each.offer}"
                )
    _sense(config, spec, faults)
    if config.validation.every and not val_tasks and not faults.found:
        faults.add(
            f"validation.every={config.validation.every} has nothing to validate on: give a val_dataset, or only a "
            "benchmark, which brings held-out tasks"
        )
    plan = Plan(
        config=config,
        program=program,
        train_tasks=train_tasks,
        val_tasks=val_tasks,
        backend=backend,
        estimator=estimator,
        loss=loss,
        filters=Filters.from_config(config.algorithm.filter, needs_group=spec is None or spec.needs_group),
        estimator_params=estimator_params,
        trackers=trackers,
        title=config.benchmark.name or program.name,
        data_revision=benchmark.revision if benchmark is not None else "",
        requirements=requirements,
    )
    return plan, tuple(faults.found)


def _benchmark(config: TrainConfig, sources: Sources, faults: _Faults) -> tuple[Benchmark | None, BenchmarkSpec | None]:
    name = config.benchmark.name
    if name is None:
        if sources.train_dataset is None:
            faults.add("nothing to train on: give a benchmark (benchmark.name=countdown) or a train_dataset")
        return None, None
    spec = faults.attempt(lambda: plugins.registry("benchmark").spec(name))
    benchmark = faults.attempt(lambda: construct("benchmark", name, config.benchmark.options))
    return benchmark, spec if isinstance(spec, BenchmarkSpec) else None


def _tasks(
    config: TrainConfig, sources: Sources, benchmark: Benchmark | None, faults: _Faults
) -> tuple[list[Task], list[Task]]:
    """Training and held-out tasks. The held-out tasks of a benchmark are the same whatever the run's seed."""
    section = config.benchmark

    def from_benchmark(split: str, limit: int | None, seed: int) -> list[Task]:
        assert benchmark is not None
        with boundary(DataError, f"benchmark {section.name!r}"):
            tasks = list(benchmark.tasks(split, limit=limit, seed=seed))
        check_ids(tasks, what=f"benchmark {section.name!r}")
        if not tasks:
            raise DataError(f"benchmark {section.name!r} has no tasks in its split {split!r}")
        return tasks

    train: list[Task] | None = None
    val: list[Task] | None = []
    if sources.train_dataset is not None:
        train = faults.attempt(lambda: tasks_from(sources.train_dataset, what="train_dataset")[: section.limit])
    elif benchmark is not None:
        train = faults.attempt(lambda: from_benchmark(section.split, section.limit, config.trainer.seed))
    wants_validation = config.validation.at_start or config.validation.at_end or config.validation.every
    if sources.val_dataset is not None:
        val = faults.attempt(lambda: tasks_from(sources.val_dataset, what="val_dataset")[: section.val_limit])
    elif benchmark is not None and sources.train_dataset is None and wants_validation:
        val = faults.attempt(lambda: from_benchmark(section.val_split, section.val_limit, 0))
    return train or [], val or []


def _program(
    config: TrainConfig,
    sources: Sources,
    benchmark: Benchmark | None,
    spec: BenchmarkSpec | None,
    faults: _Faults,
) -> Program:
    grader: Any = None
    with faults.collected():
        if sources.evaluator is not None:
            grader = as_grader(sources.evaluator)
        elif benchmark is not None:
            grader = benchmark.grader
        elif config.benchmark.name is None:
            faults.add("nothing grades the rollouts: give an evaluator, or a benchmark that brings one")
    harness: Any = None
    name = config.agent.name
    with faults.collected():
        if sources.agent_flow is not None:
            harness = as_harness(sources.agent_flow)
            for key, value in config.agent.model_dump(exclude_defaults=True).items():
                faults.add(f"agent.{key}={value!r} names an agent, and another was given as agent_flow; leave one out")
            name = getattr(harness, "name", None) or "agent"
        else:
            name = name or (spec.default_agent if spec is not None else "react")
            agent_spec = plugins.registry("harness").spec(name)
            if isinstance(agent_spec, HarnessSpec) and agent_spec.needs_sandbox:
                faults.add(f"agent {name!r} needs a sandbox, and no sandbox provider is installed")
            harness = construct_agent(name, config.agent.options)
    return Program(harness=harness, grader=grader, name=name or "agent")


def _loss(config: TrainConfig, spec: AlgorithmSpec | None, faults: _Faults) -> tuple[LossSpec, Mapping[str, float]]:
    """The loss with its parameters, and the parameters that belong to the estimator."""
    algorithm = config.algorithm
    name = algorithm.loss or (spec.loss if spec is not None else "policy_gradient")
    known = LOSSES.get(name)
    if known is None:
        faults.add(f"no loss is called {name!r}; there are {', '.join(sorted(LOSSES))}")
        return LossSpec(name=name), {}
    loss_params = {key: value for key, value in algorithm.params.items() if key in known.params}
    estimator_names = frozenset(spec.params) if spec is not None else frozenset()
    estimator_params = {key: value for key, value in algorithm.params.items() if key in estimator_names}
    for key in algorithm.params:
        if key not in known.params and key not in estimator_names:
            offer = sorted({*known.params, *estimator_names}) or ["none"]
            faults.add(
                f"algorithm.params.{key} means nothing to estimator {algorithm.estimator!r} and loss {name!r}; "
                f"they take {', '.join(offer)}"
            )
    if algorithm.kl_coef:
        loss_params["kl_coef"] = algorithm.kl_coef
    aggregation = algorithm.aggregation or (spec.aggregation if spec is not None else "token-mean")
    if aggregation == "constant":
        loss_params["horizon"] = float(config.rollout.max_tokens)
    return LossSpec(name=name, aggregation=aggregation, params={**known.params, **loss_params}), estimator_params


def _requirements(config: TrainConfig, offered: Capabilities, loss: LossSpec) -> list[Requirement]:
    schedule = config.optimizer.schedule

    def one_of(key: str, wanted: str, offer: frozenset[str]) -> Requirement:
        return Requirement(key, wanted, wanted in offer, ", ".join(sorted(offer)) or "none")

    wanted = [
        one_of("algorithm.loss", loss.name, offered.losses),
        one_of("algorithm.aggregation", loss.aggregation, offered.aggregations),
        one_of("optimizer.schedule", schedule, offered.schedules),
    ]
    if config.algorithm.kl_coef:
        wanted.append(Requirement("algorithm.kl_coef", f"{config.algorithm.kl_coef:g}", offered.kl, "no KL penalty"))
    return wanted


def _sense(config: TrainConfig, spec: AlgorithmSpec | None, faults: _Faults) -> None:
    """Combinations that run but cannot be right."""
    rollout, algorithm = config.rollout, config.algorithm
    if spec is not None and spec.needs_group and rollout.group_size < 2:
        faults.add(
            f"rollout.group_size={rollout.group_size} gives estimator {algorithm.estimator!r} nothing to compare; "
            "use at least 2, or algorithm.estimator=reinforce"
        )
    if rollout.temperature == 0:
        faults.add("rollout.temperature=0 samples every member of a group alike; training needs more than 0")
    if rollout.top_p < 1 or rollout.top_k > 0:
        faults.add(
            f"rollout.top_p={rollout.top_p:g}, rollout.top_k={rollout.top_k}: training needs the full distribution "
            "(top_p=1, top_k=0), because the learner's log-probabilities are of the full distribution"
        )
    loss = algorithm.loss or (spec.loss if spec is not None else "")
    if config.optimizer.minibatches > 1 and loss in LOSSES and LOSSES[loss].on_policy_only:
        faults.add(
            f"optimizer.minibatches={config.optimizer.minibatches} makes all but the first update off-policy, which "
            f"the loss {loss!r} ignores; use algorithm.loss=ppo_clip or importance_sampling"
        )
    if algorithm.filter.min_group > rollout.group_size:
        faults.add(
            f"algorithm.filter.min_group={algorithm.filter.min_group} drops every group of "
            f"rollout.group_size={rollout.group_size}"
        )
