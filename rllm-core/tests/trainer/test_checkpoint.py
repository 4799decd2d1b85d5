"""Checkpoints are whole or absent."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rllm.errors import RllmError, StoreError
from rllm.testing.table import TableBackend
from rllm.trainer.checkpoint import Checkpoints, CheckpointState
from rllm.trainer.data import Cursor


def state(step: int) -> CheckpointState:
    return CheckpointState(step=step, cursor=Cursor(1, step), version=0, episodes=8 * step, idle_steps=2)


@pytest.fixture
async def backend() -> Any:
    backend = TableBackend()
    await backend.open(model="table", seed=0)
    yield backend
    await backend.close()


async def test_what_was_saved_is_restored(backend: TableBackend, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    path = await checkpoints.save(backend, state(7))
    assert checkpoints.steps() == [7]
    assert await checkpoints.load(backend, 7) == state(7)
    assert (tmp_path / "model").resolve() == path / "backend" / "model"


async def test_only_the_newest_are_kept_and_model_is_the_newest(backend: TableBackend, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    for step in (1, 2, 9, 10):
        path = await checkpoints.save(backend, state(step))
    assert checkpoints.steps() == [9, 10]
    assert (tmp_path / "model").resolve() == path / "backend" / "model"
    assert sorted(each.name for each in checkpoints.folder.iterdir()) == ["step-00000009", "step-00000010"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("No space left on device")])
async def test_a_failed_save_is_one_error_and_leaves_the_earlier_ones(
    backend: TableBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    await checkpoints.save(backend, state(1))

    async def save(path: Path) -> None:
        (path / "model").mkdir(parents=True)
        raise error

    monkeypatch.setattr(backend, "save", save)
    with pytest.raises(RllmError, match="No space left on device"):
        await checkpoints.save(backend, state(2))
    assert [each.name for each in checkpoints.folder.iterdir()] == ["step-00000001"]


async def test_a_cancelled_save_leaves_nothing(
    backend: TableBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def save(path: Path) -> None:
        path.mkdir()  # noqa: ASYNC240 - a fake
        await asyncio.sleep(60)

    monkeypatch.setattr(backend, "save", save)
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    saving = asyncio.create_task(checkpoints.save(backend, state(1)))
    await asyncio.sleep(0.05)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert list(checkpoints.folder.iterdir()) == []


async def test_what_a_killed_run_left_half_written_is_not_a_checkpoint_and_is_swept(
    backend: TableBackend, tmp_path: Path
) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    await checkpoints.save(backend, state(1))
    for name in (".step-00000002.123", "step-00000003"):
        (checkpoints.folder / name / "backend").mkdir(parents=True)
    assert checkpoints.steps() == [1]
    checkpoints.sweep()
    assert [each.name for each in checkpoints.folder.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2}', '{"schema": 1, "step": 1}'])
async def test_a_damaged_checkpoint_is_one_error(backend: TableBackend, tmp_path: Path, text: str) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    path = await checkpoints.save(backend, state(1))
    (path / "state.json").write_text(text)
    with pytest.raises(StoreError, match="checkpoint"):
        await checkpoints.load(backend, 1)


async def test_a_backend_that_cannot_load_is_one_error(backend: TableBackend, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    path = await checkpoints.save(backend, state(1))
    (path / "backend/model/logits.npy").unlink()
    with pytest.raises(RllmError, match=r"logits\.npy"):
        await checkpoints.load(backend, 1)
