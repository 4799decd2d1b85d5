"""Run an evaluation: tasks x attempts through the gateway, graded, stored as they finish, summarised."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rllm import plugins
from rllm.config.environment import read_environment
from rllm.config.loading import Source, load_eval_config
from rllm.config.schema import EvalConfig
from rllm.engine.functions import as_grader, as_harness
from rllm.engine.gate import InexactGate
from rllm.engine.pool import run_rollouts
from rllm.engine.rollout import Limits, Program, RolloutRequest
from rllm.engine.source import backend_for_model, construct, construct_agent, open_backend, serve
from rllm.engine.statistics import Summary, summarize
from rllm.errors import ConfigError, DataError, RllmError, StoreError, boundary
from rllm.gateway import MessageUpstream, TokenUpstream
from rllm.ids import RolloutKey, derive_seed
from rllm.interfaces.spec import BenchmarkSpec, HarnessSpec
from rllm.plugins import events
from rllm.store import RunStore
from rllm.tasks.rows import check_ids, tasks_from
from rllm.types import Episode, JsonDict, Task

__all__ = ["EvalResult", "Evaluation", "evaluate"]


@dataclass(frozen=True, slots=True)
class EvalResult:
    """A finished evaluation."""

    run_id: str
    path: Path
    summary: Summary


class Evaluation:
    """One evaluation, resolved: nothing is opened before `run_async`."""

    def __init__(
        self,
        config: EvalConfig,
        *,
        agent_flow: Any = None,
        evaluator: Any = None,
        dataset: Any = None,
        on_start: Callable[[int], None] | None = None,
        on_episode: Callable[[Episode], None] | None = None,
    ) -> None:
        if faults := _unread(config, agent_flow):
            raise ConfigError(*faults)
        self.config = config
        self.run_id = ""
        """Set once the run's folder exists."""
        self._on_start = on_start
        self._on_episode = on_episode
        self.data_revision = ""
        benchmark: Any = None
        spec: Any = None
        if config.benchmark.name is not None:
            spec = plugins.registry("benchmark").spec(config.benchmark.name)
            benchmark = construct("benchmark", config.benchmark.name, config.benchmark.options)
            self.data_revision = benchmark.revision
        self.tasks = self._select(dataset, benchmark)
        self.program = self._program(agent_flow, evaluator, benchmark, spec)
        self.title = config.benchmark.name or self.program.name
        read_environment().api_key(config.model.api_key_env)

    def _select(self, dataset: Any, benchmark: Any) -> list[Task]:
        config = self.config
        if dataset is not None:
            tasks = tasks_from(dataset, what="dataset")
        elif benchmark is not None:
            with boundary(DataError, f"benchmark {config.benchmark.name!r}"):
                limit = None if config.tasks else config.limit
                tasks = list(benchmark.tasks(config.benchmark.split, limit=limit, seed=config.seed))
            check_ids(tasks, what=f"benchmark {config.benchmark.name!r}")
        else:
            raise ConfigError("nothing to evaluate: name a benchmark or give a dataset")
        if config.tasks:
            known = {task.id for task in tasks}
            if missing := [task_id for task_id in config.tasks if task_id not in known]:
                raise ConfigError(f"no task has the id {missing[0]!r}; ids look like {sorted(known)[:3]}")
            tasks = [task for task in tasks if task.id in set(config.tasks)]
        if not tasks:
            raise DataError(f"{config.benchmark.name or 'dataset'} has no tasks in {config.benchmark.split!r}")
        return tasks[: config.limit]

    def _program(self, agent_flow: Any, evaluator: Any, benchmark: Any, spec: Any) -> Program:
        config = self.config
        if evaluator is None and benchmark is None:
            raise ConfigError("nothing grades the episodes: give an evaluator, or a benchmark that brings one")
        grader = as_grader(evaluator) if evaluator is not None else benchmark.grader
        if agent_flow is not None and not isinstance(agent_flow, str):
            harness = as_harness(agent_flow)
            return Program(harness, grader, getattr(harness, "name", None) or "agent")
        default = spec.default_agent if isinstance(spec, BenchmarkSpec) else "react"
        name = agent_flow or config.agent.name or default
        agent_spec = plugins.registry("harness").spec(name)
        if isinstance(agent_spec, HarnessSpec) and agent_spec.needs_sandbox:
            raise ConfigError(f"agent {name!r} needs a sandbox, and no sandbox provider is installed")
        return Program(construct_agent(name, config.agent.options), grader, name)

    @property
    def sampling(self) -> JsonDict:
        """Parameters that the gateway enforces. A provider gets only what differs from its defaults."""
        wanted = self.config.sampling.model_dump()
        if self.config.model.base_url is None:
            return wanted
        return {key: value for key, value in wanted.items() if (key, value) not in (("top_p", 1.0), ("top_k", 0))}

    @asynccontextmanager
    async def _upstream(self) -> AsyncIterator[TokenUpstream | MessageUpstream]:
        model = self.config.model
        if model.base_url is not None:
            key = read_environment().api_key(model.api_key_env)
            yield MessageUpstream(model.base_url, model.name, key, timeout_s=self.config.timeout_s)
            return
        name = self.config.backend.name or backend_for_model(model.name)
        backend = construct("backend", name, self.config.backend.options)
        async with open_backend(backend, model=model.name, seed=self.config.seed, trainable=False) as (
            _,
            upstream,
        ):
            yield upstream

    def requests(self, done: set[RolloutKey]) -> Iterator[RolloutRequest]:
        """What remains to be attempted."""
        sampling = self.sampling
        for task in self.tasks:
            for attempt in range(self.config.attempts):
                if RolloutKey(task.id, attempt) not in done:
                    yield RolloutRequest(
                        task=task,
                        attempt=attempt,
                        seed=derive_seed(self.config.seed, "eval", task.id, attempt),
                        sampling=sampling,
                        is_validation=True,
                    )

    def manifest(self) -> dict[str, Any]:
        return {
            "config": self.config.model_dump(mode="json"),
            "plugins": plugins.resolved(),
            "data_revision": self.data_revision,
            "seed": self.config.seed,
            "argv": sys.argv,
        }

    async def run_async(self, *, runs: Path | None = None, resume: Path | None = None) -> EvalResult:
        """Evaluate; episodes are stored as they finish. `resume` is the folder of a run to complete.

        Cancelled, it leaves a run that can be resumed, called `run_id`.
        """
        if resume is not None:
            store = RunStore.open(resume, write=True)
        else:
            store = RunStore.create(
                runs or read_environment().runs, kind="eval", name=self.title, manifest=self.manifest()
            )
        with store:
            if resume is not None:
                self._check_same(store)
            self.run_id = store.id
            status = "failed"
            try:
                store.set_status("running")
                events().rllm_run_started(run_id=store.id, path=store.path, config=self.config.model_dump(mode="json"))
                summary = await self._run(store)
                status = "finished"
            except asyncio.CancelledError:
                status = "interrupted"
                raise
            except RllmError as error:
                if not isinstance(error, StoreError):
                    store.add_event("error", {"kind": type(error).__name__, "message": str(error)})
                raise
            finally:
                try:
                    store.set_status(status)
                finally:
                    events().rllm_run_finished(run_id=store.id, status=status)
            return EvalResult(store.id, store.path, summary)

    def _check_same(self, store: RunStore) -> None:
        """Refuse to go on with what is not this run."""
        kind, revision = store.manifest["kind"], store.manifest.get("data_revision", "")
        if kind != "eval":
            raise ConfigError(f"{store.id!r} is a run of `rllm {kind}`, expected one of `rllm eval`")
        if revision != self.data_revision:
            raise DataError(
                f"run {store.id!r} was begun on data of revision {revision!r}, and it is {self.data_revision!r} now; "
                "begin a new run"
            )

    async def _run(self, store: RunStore) -> Summary:
        config = self.config
        requests = list(self.requests(store.finished("eval")))
        gate = InexactGate(config.gateway.max_inexact)
        if gate.limit is not None:
            for episode in store.episodes(split="eval"):
                gate.check(episode)
        limits = Limits(timeout_s=config.timeout_s, max_retries=config.max_retries, max_calls=config.max_calls)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.program.close)
            upstream = await stack.enter_async_context(self._upstream())
            gateway = await stack.enter_async_context(serve(upstream, config.gateway))
            if self._on_start is not None:
                self._on_start(len(requests))
            episodes = await stack.enter_async_context(
                aclosing(
                    run_rollouts(
                        self.program,
                        requests,
                        gateway,
                        limits,
                        concurrency=max(1, min(config.concurrency, len(requests))),
                    )
                )
            )
            async for episode in episodes:
                store.add_episode(episode, step=None, split="eval")
                events().rllm_rollout_finished(run_id=store.id, episode=episode)
                if self._on_episode is not None:
                    self._on_episode(episode)
                gate.check(episode)
        store.flush()
        summary = summarize(store.episodes(split="eval"))
        store.add_event("summary", summary.as_dict())
        events().rllm_evaluation_finished(run_id=store.id, summary=summary.as_dict())
        return summary


def _unread(config: EvalConfig, agent_flow: Any) -> list[str]:
    """Settings that nothing would read beside the others."""
    faults = []
    if config.model.base_url is not None:
        for key, value in config.backend.model_dump(exclude_defaults=True).items():
            faults.append(f"backend.{key}={value!r} serves nothing: the model is at model.base_url; leave one out")
    elif config.model.api_key_env is not None:
        faults.append(f"model.api_key_env={config.model.api_key_env!r} is for the server at model.base_url; give both")
    if agent_flow is not None and not isinstance(agent_flow, str):
        for key, value in config.agent.model_dump(exclude_defaults=True).items():
            faults.append(f"agent.{key}={value!r} names an agent, and another was given as agent_flow; leave one out")
    return faults


def evaluate(
    agent_flow: Any = None,
    *,
    evaluator: Any = None,
    dataset: Any = None,
    benchmark: str | None = None,
    model: str | None = None,
    base_url: str | None = None,
    config: EvalConfig | Mapping[str, Any] | str | Path | None = None,
    runs: Path | str | None = None,
) -> EvalResult:
    """Evaluate an agent and return what it came to; the episodes are in the run at `result.path`.

    `agent_flow` is a function `(task, config)`, an object with `run`, or a name; `evaluator` a function
    `(task, episode)` or an object with `grade`; `dataset` a sequence of Tasks or mappings. `benchmark` brings tasks,
    grader and a default agent. `model` is a name that a backend can open, or the name on the server at `base_url`.
    """
    if isinstance(config, EvalConfig):
        given = {"benchmark": benchmark, "model": model, "base_url": base_url}
        if clash := [name for name, value in given.items() if value is not None]:
            raise ConfigError(f"{clash[0]} was given twice: as an argument and in config")
        resolved = config
    else:
        flags: dict[str, Any] = dict(config) if isinstance(config, Mapping) else {}
        named = (("benchmark.name", benchmark), ("model.name", model), ("model.base_url", base_url))
        flags |= {key: value for key, value in named if value is not None}
        file = Path(config) if isinstance(config, str | Path) else None
        resolved = load_eval_config(
            file, (), flags, user_defaults=read_environment().eval_defaults(), flags_from=Source.PYTHON
        ).config
    evaluation = Evaluation(resolved, agent_flow=agent_flow, evaluator=evaluator, dataset=dataset)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(evaluation.run_async(runs=Path(runs) if runs is not None else None))
    raise RuntimeError("evaluate() was called inside an event loop; use `await Evaluation(…).run_async()` instead")
