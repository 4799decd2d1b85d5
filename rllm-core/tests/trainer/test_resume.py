"""A run that was stopped and resumed leaves what a straight run leaves: parameters, episodes, metrics."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rllm.engine.statistics import Summary
from rllm.errors import BackendError, ConfigError, DataError
from rllm.store import RunStore
from rllm.testing.table import TableBackend
from rllm.trainer.interrupt import Interrupted
from rllm.trainer.observer import Silent
from rllm.types import Episode


class Stopper(Silent):
    """Presses Ctrl-C when it is told something; remembers the validations."""

    def __init__(self, when: Callable[[str, int], int]) -> None:
        self.when = when
        self.step = 0
        self.validated_at: list[int] = []

    def _press(self, what: str, step: int) -> None:
        for _ in range(self.when(what, step)):
            os.kill(os.getpid(), signal.SIGINT)

    def rollouts(self, *, what: str, total: int) -> None:
        self._press(what, self.step)

    def stepped(self, step: int, metrics: Mapping[str, float]) -> None:
        self.step = step
        self._press("stepped", step)

    def validated(self, step: int, summary: Summary) -> None:
        self.validated_at.append(step)

    def saved(self, step: int, path: Path) -> None:
        self._press("saved", step)


def left_behind(folder: Path) -> dict[str, Any]:
    """Everything in the run that does not depend on the time."""

    def timeless(rows: list[dict[str, float]]) -> list[dict[str, float]]:
        return [{k: v for k, v in row.items() if not k.startswith(("time/", "throughput/"))} for row in rows]

    def essence(episode: Episode) -> tuple[Any, ...]:
        return (
            episode.task_id,
            episode.attempt,
            episode.reward,
            [call.response_ids.tolist() for call in episode.calls()],
        )

    with RunStore.open(folder) as store:
        found: dict[str, Any] = {kind: timeless(store.metrics(kind)) for kind in ("train", "validation")}
        for split in ("train", "validation"):
            steps = range(7)
            found[f"{split} episodes"] = {
                step: sorted(map(essence, store.episodes(split=split, step=step))) for step in steps
            }
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found["lines"] = sorted((line["step"], line["kind"]) for line in lines)
    found["weights"] = np.load(folder / "model/logits.npy").tolist()
    return found


PLACES: dict[str, Callable[[str, int], int]] = {
    "validation before the first step": lambda what, step: what == "validation" and step == 0,
    "rollouts of the first step": lambda what, step: what == "train" and step == 0,
    "a validation on the way": lambda what, step: what == "validation" and step == 2,
    "the end of a step that a validation follows": lambda what, step: what == "stepped" and step == 4,
    "saving": lambda what, step: what == "saved" and step == 4,
    "rollouts": lambda what, step: what == "train" and step == 3,
    "the end of the last step": lambda what, step: what == "stepped" and step == 6,
    "the last validation": lambda what, step: what == "validation" and step == 6,
}


@pytest.mark.parametrize("place", PLACES)
def test_ctrl_c_anywhere_and_resume_leave_what_a_straight_run_leaves(make_trainer: Any, place: str) -> None:
    settings = {"validation__every": 2, "trainer__checkpoint_every": 4, "rollout__group_size": 4}
    straight = left_behind(make_trainer(**settings).train().path)
    trainer = make_trainer(observer=Stopper(PLACES[place]), **settings)
    with pytest.raises(Interrupted) as stopped:
        trainer.train()
    folder = trainer._runs / str(stopped.value)
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    again = Stopper(lambda what, step: 0)
    result = make_trainer(observer=again, **settings).train(resume=folder)
    assert left_behind(result.path) == straight
    assert sorted(trainer._observer.validated_at + again.validated_at) == [0, 2, 4, 6]


def test_a_second_ctrl_c_ends_at_once_and_is_still_a_clean_stop(make_trainer: Any) -> None:
    trainer = make_trainer(observer=Stopper(lambda what, step: 2 if (what, step) == ("stepped", 3) else 0))
    with pytest.raises(Interrupted):
        trainer.train()
    (folder,) = trainer._runs.iterdir()
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    resumed = make_trainer().train(resume=folder)
    assert left_behind(resumed.path)["weights"] == left_behind(make_trainer().train().path)["weights"]


def test_ctrl_c_while_the_model_is_opened_does_not_wait_for_it(
    make_trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    async def forever(self: TableBackend, **_: Any) -> Any:
        await asyncio.sleep(60)

    trainer = make_trainer()
    with monkeypatch.context() as patched:
        patched.setattr(TableBackend, "open", forever)
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        started = time.perf_counter()
        with pytest.raises(Interrupted) as stopped:
            trainer.train()
        assert time.perf_counter() - started < 5
    assert make_trainer().train(resume=trainer._runs / str(stopped.value)).steps == 6


def test_a_failure_that_is_nobodys_plan_still_saves_the_finished_steps(make_trainer: Any) -> None:
    class Broken(Silent):
        def stepped(self, step: int, metrics: Mapping[str, float]) -> None:
            if step == 3:
                raise BrokenPipeError("the terminal is gone")

    trainer = make_trainer(observer=Broken())
    with pytest.raises(BrokenPipeError):
        trainer.train()
    (folder,) = trainer._runs.iterdir()
    assert (folder / "checkpoints/step-00000003").is_dir()


@pytest.mark.parametrize("method", ["step", "publish"])
def test_a_backend_that_raises_a_plain_error_is_named_and_no_checkpoint_is_ahead_of_its_cursor(
    make_trainer: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    original = getattr(TableBackend, method)
    calls = 0

    async def fail(self: TableBackend, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise RuntimeError("CUDA error")
        return await original(self, *args)

    straight = left_behind(make_trainer().train().path)
    trainer = make_trainer()
    with monkeypatch.context() as patched:
        patched.setattr(TableBackend, method, fail)
        with pytest.raises(BackendError, match="RuntimeError: CUDA error"):
            trainer.train()
    (folder,) = (path for path in trainer._runs.iterdir() if "failed" in (path / "run.json").read_text())
    assert left_behind(make_trainer().train(resume=folder).path) == straight


def test_a_run_of_another_kind_is_not_resumed(make_trainer: Any, tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "runs", kind="eval", name="x", manifest={}) as store:
        path = store.path
    with pytest.raises(ConfigError, match="is a run of `rllm eval`"):
        make_trainer().train(resume=path)


def test_a_run_whose_data_has_changed_is_not_resumed(make_trainer: Any) -> None:
    path = make_trainer(trainer__steps=1).train().path
    manifest = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**manifest, "data_revision": "older"}))
    with pytest.raises(DataError, match="'older'"):
        make_trainer().train(resume=path)


def test_resuming_a_finished_run_changes_nothing(make_trainer: Any) -> None:
    path = make_trainer().train().path
    before = left_behind(path)
    assert make_trainer().train(resume=path).steps == 6
    assert left_behind(path) == before
