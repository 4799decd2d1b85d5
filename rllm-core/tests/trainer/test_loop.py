import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rllm.engine.statistics import Summary
from rllm.errors import BackendError, ConfigError, GatewayError, StoreError
from rllm.gateway import TokenUpstream
from rllm.plugins.listeners import Events
from rllm.store import RunStore
from rllm.testing.table import TableBackend
from rllm.trainer.interrupt import Interrupted
from rllm.trainer.loop import Trainer, TrainingStalled
from rllm.trainer.observer import Silent
from rllm.types import CapturedCall, EpisodeStatus, Exactness


def weights(folder: Path, step: int) -> Any:
    return np.load(folder / f"checkpoints/step-{step:08d}/backend/model/logits.npy")


class Watcher(Silent):
    def __init__(self) -> None:
        self.steps: list[Mapping[str, float]] = []
        self.validations: list[Summary] = []
        self.at_step: Any = None

    def stepped(self, step: int, metrics: Mapping[str, float]) -> None:
        self.steps.append(metrics)
        if self.at_step is not None:
            self.at_step(step)

    def validated(self, step: int, summary: Summary) -> None:
        self.validations.append(summary)


def test_it_learns_through_the_gateway_and_records_what_happened(make_trainer: Any) -> None:
    watcher = Watcher()
    result = make_trainer(observer=watcher, trainer__steps=12).train()
    assert watcher.validations[-1].mean_reward > watcher.validations[0].mean_reward + 0.3
    assert watcher.steps[0]["gateway/calls_exact"] == 32
    with RunStore.open(result.path, write=False) as store:
        assert store.manifest["status"] == "finished"
        assert len(store.metrics("train")) == 12
        assert [row["step"] for row in store.metrics("validation")] == [0, 12]
        episodes = list(store.episodes(split="train"))
    assert len(episodes) == 12 * 32
    assert {version for e in episodes for c in e.calls() for version in c.weight_versions} == set(range(12))
    assert (result.model / "logits.npy").is_file()


def test_the_same_seed_gives_the_same_parameters_and_another_seed_others(make_trainer: Any) -> None:
    finals = [weights(make_trainer(trainer__seed=seed).train().path, 6) for seed in (1, 1, 2)]
    assert np.array_equal(finals[0], finals[1])
    assert not np.array_equal(finals[0], finals[2])


@pytest.mark.parametrize("stop", [1, 2, 3, 5])
def test_an_interrupted_run_resumes_to_the_same_parameters(make_trainer: Any, stop: int) -> None:
    straight = weights(make_trainer().train().path, 6)
    watcher = Watcher()
    trainer = make_trainer(observer=watcher)

    async def run() -> str:
        created: list[Trainer] = []
        original = Trainer.__init__

        def remember(self: Trainer, *args: Any) -> None:
            original(self, *args)
            created.append(self)

        Trainer.__init__ = remember  # type: ignore[method-assign]  # the only way to reach its interrupt
        try:
            watcher.at_step = lambda step: created[0].interrupt.request() if step == stop else None
            await trainer.train_async()
        except Interrupted as stopped:
            return str(stopped)
        finally:
            Trainer.__init__ = original  # type: ignore[method-assign]  # restored
        raise AssertionError("it was not interrupted")

    run_id = asyncio.run(run())
    (folder,) = [path for path in trainer._runs.iterdir() if path.name == run_id]
    result = make_trainer().train(resume=folder)
    assert np.array_equal(weights(result.path, 6), straight)
    with RunStore.open(result.path, write=False) as store:
        assert [row["step"] for row in store.metrics("train")] == [1, 2, 3, 4, 5, 6]
        assert store.manifest["status"] == "finished"


def test_nothing_to_learn_from_stops_the_run_and_keeps_its_work(make_trainer: Any) -> None:
    trainer = make_trainer(evaluator="constant", trainer__max_idle_steps=3)
    with pytest.raises(TrainingStalled, match=r"nothing to learn from in 3 steps in a row: all 4 groups .* too_hard"):
        trainer.train()
    (folder,) = trainer._runs.iterdir()
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    assert (folder / "checkpoints").is_dir()


def test_an_evaluator_that_raises_leaves_episodes_ungraded_and_is_named(make_trainer: Any) -> None:
    trainer = make_trainer(evaluator="broken", trainer__max_idle_steps=2)
    with pytest.raises(TrainingStalled, match=r"none of 32 rollouts was graded.*ValueError: no idea"):
        trainer.train()
    (folder,) = trainer._runs.iterdir()
    with RunStore.open(folder, write=False) as store:
        statuses = {episode.status for episode in store.episodes(split="train")}
    assert statuses == {EpisodeStatus.UNGRADED}


def test_a_rollout_that_hangs_is_a_timeout(make_trainer: Any) -> None:
    trainer = make_trainer(agent="slow", rollout__timeout_s=0.2, trainer__max_idle_steps=1)
    with pytest.raises(TrainingStalled, match="still running after 0.2 s"):
        trainer.train()


def test_a_learner_that_fails_ends_the_run_with_its_finished_steps_saved(
    make_trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = TableBackend.step
    calls = 0

    async def step(self: TableBackend, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise BackendError("the loss is not finite")
        return await original(self, *args)

    monkeypatch.setattr(TableBackend, "step", step)
    trainer = make_trainer()
    with pytest.raises(BackendError, match="not finite"):
        trainer.train()
    (folder,) = trainer._runs.iterdir()
    assert (folder / "checkpoints/step-00000003").is_dir()
    monkeypatch.setattr(TableBackend, "step", original)
    resumed = make_trainer().train(resume=folder)
    assert np.array_equal(weights(resumed.path, 6), weights(make_trainer().train().path, 6))


def test_a_full_disk_at_a_checkpoint_is_one_clear_error(make_trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def save(self: TableBackend, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TableBackend, "save", save)
    with pytest.raises(StoreError, match="No space left on device"):
        make_trainer().train()


def test_every_fault_is_reported_before_anything_runs(make_trainer: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        make_trainer(
            algorithm__estimator="grpoo",
            algorithm__loss="ppo_clip",
            algorithm__kl_coef=0.1,
            rollout__temperature=0.0,
            rollout__top_p=0.9,
        )
    text = "\n".join(caught.value.faults)
    for part in (
        "grpoo",
        "did you mean 'grpo'",
        "algorithm.loss=ppo_clip",
        "kl_coef",
        "temperature=0",
        "top_p=0.9",
    ):
        assert part in text, part
    assert len(caught.value.faults) == 5


def test_a_group_of_one_is_refused_for_estimators_that_compare(make_trainer: Any) -> None:
    with pytest.raises(ConfigError, match="group_size=1"):
        make_trainer(rollout__group_size=1)
    make_trainer(rollout__group_size=1, algorithm__estimator="reinforce")


def test_replies_longer_than_the_context_are_refused(make_trainer: Any) -> None:
    with pytest.raises(ConfigError, match="context of 'table' is 512"):
        make_trainer(rollout__max_tokens=512).train()


def test_train_inside_an_event_loop_says_what_to_do(make_trainer: Any) -> None:
    async def main() -> None:
        make_trainer().train()

    with pytest.raises(RuntimeError, match="await trainer.train_async"):
        asyncio.run(main())


def test_a_tracker_that_raises_is_reported_once_and_never_stops_the_run(
    make_trainer: Any, table: Any, caplog: pytest.LogCaptureFixture
) -> None:
    table.Sulking.told.clear()
    result = make_trainer(trainer__trackers=("table_plugin:Sulking",), trainer__steps=2).train()
    assert result.steps == 2
    assert table.Sulking.told == ["start", "log 1", "log 2", "finish False"]
    assert caplog.text.count("no network") == 1
    assert "table_plugin:Sulking" in caplog.text


def test_every_rollout_of_a_step_has_a_seed_of_its_own_even_across_epochs(make_trainer: Any) -> None:
    result = make_trainer(trainer__steps=1, trainer__tasks_per_step=12, rollout__max_tokens=16).train()
    with RunStore.open(result.path, write=False) as store:
        episodes = list(store.episodes(split="train"))
    assert len(episodes) == 96
    replies = {(e.task_id, *(int(i) for c in e.calls() for i in c.response_ids)) for e in episodes}
    assert len(replies) > 90


def test_more_inexact_calls_than_allowed_stop_the_run(make_trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original = TokenUpstream._capture

    def capture(self: TokenUpstream, *args: Any) -> CapturedCall:
        call = original(self, *args)
        call.exactness = Exactness.INEXACT
        return call

    monkeypatch.setattr(TokenUpstream, "_capture", capture)
    with pytest.raises(GatewayError, match=r"gateway\.max_inexact=3"):
        make_trainer(gateway__max_inexact=3).train()
    with pytest.raises(TrainingStalled, match="calls_inexact"):
        make_trainer(trainer__max_idle_steps=1).train()


def test_trajectories_that_cannot_be_grouped_are_counted_by_reason(make_trainer: Any) -> None:
    watcher = Watcher()
    with pytest.raises(TrainingStalled, match="32 empty"):
        make_trainer(agent="nothing", observer=watcher, trainer__max_idle_steps=1).train()


def test_events_are_told_in_order_and_the_status_is_recorded_before_the_last(
    make_trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def tell(self: Events, event: str, **arguments: Any) -> None:
        name = event.removeprefix("rllm_")
        if name == "run_finished":
            (folder,) = trainer._runs.iterdir()
            told.append(json.loads((folder / "run.json").read_text())["status"])
        if not told or told[-1] != name:
            told.append(name)

    monkeypatch.setattr(Events, "_tell", tell)
    trainer = make_trainer(trainer__steps=1)
    trainer.train()
    assert told == [
        "run_started",
        "rollout_finished",
        "evaluation_finished",
        "rollout_finished",
        "step_finished",
        "rollout_finished",
        "evaluation_finished",
        "finished",
        "run_finished",
    ]
