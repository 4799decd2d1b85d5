"""The run that a person names on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rllm.config.environment import read_environment
from rllm.errors import ConfigError, ModelError
from rllm.store import RunStore, find_run

__all__ = ["NamedRun", "model_of", "resumable"]


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run found by id, name or folder."""

    path: Path
    manifest: Mapping[str, Any]


def _find(reference: str) -> NamedRun:
    path = find_run(read_environment().runs, reference)
    with RunStore.open(path, write=False) as store:
        return NamedRun(path, store.manifest)


def resumable(reference: str, kind: str, *, alone: bool) -> NamedRun:
    """The run to go on with. A resumed run keeps its own configuration, so `alone` must hold."""
    if not alone:
        raise ConfigError("--resume goes on with the run's own configuration; give nothing else but --json")
    run = _find(reference)
    if run.manifest["kind"] != kind:
        found = run.manifest["kind"]
        raise ConfigError(f"{reference!r} is a run of `rllm {found}`; use: rllm {found} --resume {reference}")
    return run


def model_of(model: str | None) -> str | None:
    """`run:ID` is the model that a training run has saved last; anything else is unchanged."""
    if model is None or not model.startswith("run:"):
        return model
    run = _find(model.removeprefix("run:"))
    path = run.path / "model"
    if not path.is_dir():
        raise ModelError(f"run {run.manifest['id']!r} has not saved a model yet")
    return str(path.resolve())
