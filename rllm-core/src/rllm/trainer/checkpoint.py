"""Checkpoints that are whole or absent: written to a temporary folder, flushed to disk, then renamed.

A checkpoint holds the backend's state (weights, optimizer, version) and the trainer's (step, data cursor). The newest
one is found by looking, so there is no second file that could disagree.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from rllm.errors import StoreError, boundary
from rllm.interfaces.backend import Backend
from rllm.trainer.data import Cursor

__all__ = ["CheckpointState", "Checkpoints"]

_STATE = "state.json"
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """What the trainer needs to go on after `step` learner steps."""

    step: int
    cursor: Cursor
    version: int
    """Published weight version."""
    episodes: int
    """Rollouts made so far."""
    idle_steps: int = 0
    """Steps in a row without an informative group."""


class Checkpoints:
    """The checkpoints of one run, `folder/step-00000050` each."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def steps(self) -> list[int]:
        """Steps with a whole checkpoint, in order."""
        found = []
        for path in self.folder.glob("step-*"):
            digits = path.name.removeprefix("step-")
            if digits.isdecimal() and (path / _STATE).is_file():
                found.append(int(digits))
        return sorted(found)

    async def save(self, backend: Backend, state: CheckpointState) -> Path:
        """Write a checkpoint, then remove those beyond the newest `keep`. Raises StoreError when it cannot, as on a
        full disk; earlier checkpoints are then untouched."""
        final = self.path(state.step)
        temporary = self.folder / f".{final.name}.{os.getpid()}"
        try:
            with boundary(StoreError, f"cannot write the checkpoint {str(final)!r}"):
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir(parents=True)
                await backend.save(temporary / "backend")
                text = json.dumps({"schema": _SCHEMA, **asdict(state)}, indent=1)
                (temporary / _STATE).write_text(text + "\n")
                _flush(temporary)
                self._remove(final)
                temporary.rename(final)
                _flush_folder(self.folder)
                self._point_at(final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        for step in self.steps()[: -self._keep]:
            self._remove(self.path(step))
        return final

    async def load(self, backend: Backend, step: int) -> CheckpointState:
        """Restore the checkpoint of `step`. Raises StoreError when it is damaged."""
        path = self.path(step)
        with boundary(StoreError, f"cannot read the checkpoint {str(path)!r}"):
            data = json.loads((path / _STATE).read_text())
            if not isinstance(data, dict) or data.pop("schema", None) != _SCHEMA:
                raise StoreError(f"the checkpoint {str(path)!r} was written by another version of rllm")
            state = CheckpointState(**{**data, "cursor": Cursor(**data["cursor"])})
            await backend.load(path / "backend")
        return state

    def sweep(self) -> None:
        """Remove what a killed run left half-written."""
        whole = {self.path(step) for step in self.steps()}
        for path in [*self.folder.glob(".step-*"), *self.folder.glob("step-*")]:
            if path not in whole:
                shutil.rmtree(path, ignore_errors=True)

    def _remove(self, path: Path) -> None:
        """Remove a checkpoint that may not exist; killed on the way, what is left does not look like a whole one."""
        (path / _STATE).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)

    def _point_at(self, final: Path) -> None:
        """`model`, beside the folder, is the newest checkpoint's model directory."""
        link = self.folder.parent / "model"
        temporary = self.folder.parent / f".model.{os.getpid()}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(Path(self.folder.name) / final.name / "backend" / "model")
        temporary.replace(link)


def _flush(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        elif path.is_dir():
            _flush_folder(path)
    _flush_folder(folder)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
