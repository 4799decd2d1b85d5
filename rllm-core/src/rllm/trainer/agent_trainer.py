"""`AgentTrainer`: train an agent from Python, by name or with two functions of one's own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rllm import plugins
from rllm.config.environment import read_environment
from rllm.config.loading import Source, load_train_config
from rllm.config.schema import TrainConfig
from rllm.errors import ConfigError, DataError, RllmError, StoreError
from rllm.plugins import events
from rllm.store import RunStore
from rllm.trainer.defaults import model_defaults
from rllm.trainer.interrupt import Interrupted
from rllm.trainer.loop import Trainer
from rllm.trainer.observer import Silent, TrainObserver
from rllm.trainer.plan import Plan, Sources, make_plan

__all__ = ["AgentTrainer", "TrainResult"]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a finished run left behind."""

    run_id: str
    path: Path
    """The run's folder."""
    model: Path
    """The trained model, a directory that any backend or `--model` accepts."""
    steps: int


class AgentTrainer:
    """Trains one agent program.

    `agent_flow` is a function `(task, config)` (`@rllm.rollout`), an object with `run`, or a name; `evaluator` a
    function `(task, episode)` (`@rllm.evaluator`) or an object with `grade`. Data sets are sequences of Tasks or of
    mappings. Each of them may be left out when `config` names a benchmark. `config` is a TrainConfig, a mapping of
    nested or dotted keys, or the path of a YAML file.

    The constructor resolves everything and raises ConfigError with every fault; nothing is loaded before `train`.
    """

    def __init__(
        self,
        *,
        backend: str | None = None,
        agent_flow: Any = None,
        evaluator: Any = None,
        config: TrainConfig | Mapping[str, Any] | str | Path | None = None,
        train_dataset: Any = None,
        val_dataset: Any = None,
        observer: TrainObserver | None = None,
        runs: Path | str | None = None,
    ) -> None:
        self.config = _resolve_config(config, backend, agent_flow)
        named = isinstance(agent_flow, str)
        self._sources = Sources(
            agent_flow=None if named else agent_flow,
            evaluator=evaluator,
            train_dataset=train_dataset,
            val_dataset=val_dataset,
        )
        self.plan: Plan = make_plan(self.config, self._sources)
        self._observer: TrainObserver = observer or Silent()
        self._runs = Path(runs) if runs is not None else read_environment().runs

    def train(self, *, resume: RunStore | Path | str | None = None) -> TrainResult:
        """Run to the end. `resume` is the folder of a run to go on with. Raises Interrupted after a clean Ctrl-C.

        Must not be called inside a running event loop: use `await train_async()` there.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.train_async(resume=resume))
        raise RuntimeError("train() was called inside an event loop; use `await trainer.train_async()` instead")

    async def train_async(self, *, resume: RunStore | Path | str | None = None) -> TrainResult:
        """`train`, for callers that have an event loop."""
        if isinstance(resume, RunStore):
            store = resume
        elif resume is not None:
            store = RunStore.open(Path(resume), write=True)
        else:
            store = RunStore.create(self._runs, kind="train", name=self.plan.title, manifest=self._manifest())
        with store:
            if resume is not None:
                self._check_same(store)
            trainer = Trainer(self.plan, store, self._observer)
            await _run(trainer, store, resume=resume is not None)
            return TrainResult(run_id=store.id, path=store.path, model=store.path / "model", steps=trainer.state.step)

    def _check_same(self, store: RunStore) -> None:
        """Refuse to go on with what is not this run."""
        kind, revision = store.manifest["kind"], store.manifest.get("data_revision", "")
        if kind != "train":
            raise ConfigError(f"{store.id!r} is a run of `rllm {kind}`, expected one of `rllm train`")
        if revision != self.plan.data_revision:
            raise DataError(
                f"run {store.id!r} was begun on data of revision {revision!r}, and it is {self.plan.data_revision!r} "
                "now; begin a new run"
            )

    def _manifest(self) -> dict[str, Any]:
        return {
            "config": self.config.model_dump(mode="json"),
            "plugins": plugins.resolved(),
            "data_revision": self.plan.data_revision,
            "seed": self.config.trainer.seed,
            "argv": sys.argv,
        }


async def _run(trainer: Trainer, store: RunStore, *, resume: bool) -> None:
    config = trainer.config.model_dump(mode="json")
    status = "failed"
    try:
        store.set_status("running")
        trainer.trackers.start(store.id, config)
        events().rllm_run_started(run_id=store.id, path=store.path, config=config)
        await trainer.run(resume=resume)
        status = "finished"
    except Interrupted:
        status = "interrupted"
        raise Interrupted(store.id) from None
    except asyncio.CancelledError:
        status = "interrupted"
        if not trainer.interrupt.insisted:
            raise
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        raise Interrupted(store.id) from None
    except RllmError as error:
        _tell(store, error)
        raise
    finally:
        _close(trainer, store, status)


def _tell(store: RunStore, error: RllmError) -> None:
    """Leave the reason in the run, unless the run's disk is what failed."""
    if not isinstance(error, StoreError):
        store.add_event("error", {"kind": type(error).__name__, "message": str(error)})


def _close(trainer: Trainer, store: RunStore, status: str) -> None:
    trainer.trackers.finish(failed=status != "finished")
    try:
        store.set_status(status)
    finally:
        events().rllm_run_finished(run_id=store.id, status=status)


def _resolve_config(
    config: TrainConfig | Mapping[str, Any] | str | Path | None, backend: str | None, agent_flow: Any
) -> TrainConfig:
    if isinstance(config, TrainConfig):
        if backend is not None and backend != config.backend.name:
            raise ConfigError(f"backend={backend!r} contradicts config.backend.name={config.backend.name!r}")
        if not isinstance(agent_flow, str):
            return config
        if config.agent.name not in (None, agent_flow):
            raise ConfigError(f"agent_flow={agent_flow!r} contradicts config.agent.name={config.agent.name!r}")
        return config.model_copy(update={"agent": config.agent.model_copy(update={"name": agent_flow})})
    flags: dict[str, Any] = dict(config) if isinstance(config, Mapping) else {}
    if backend is not None:
        flags["backend.name"] = backend
    if isinstance(agent_flow, str):
        flags["agent.name"] = agent_flow
    file = Path(config) if isinstance(config, str | Path) else None
    return load_train_config(file, (), flags, suggest=model_defaults, flags_from=Source.PYTHON).config
