"""A run is written as it happens, read meanwhile, resumed exactly, and has one writer."""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rllm.errors import StoreError
from rllm.ids import RolloutKey
from rllm.store import RunStore
from rllm.types import CapturedCall, Episode, EpisodeStatus, Step, Trajectory


def episode(task_id: str = "t", attempt: int = 0, **fields: Any) -> Episode:
    call = CapturedCall(added_ids=[1, 2], response_ids=[3], logprobs=[-0.5], weight_versions=[4])
    fields.setdefault("status", EpisodeStatus.GRADED)
    return Episode(task_id=task_id, attempt=attempt, trajectories=[Trajectory(steps=[Step(call=call)])], **fields)


def create(root: Path, **manifest: Any) -> RunStore:
    return RunStore.create(root, kind="train", name="Count Down!", manifest=manifest)


def test_a_run_is_a_folder_that_says_what_it_is(tmp_path: Path) -> None:
    with create(tmp_path / "deep" / "runs", config={"a": 1}, argv=["rllm"]) as run:
        assert run.path.parent == tmp_path / "deep" / "runs"
        assert run.path.name == run.id
        assert "-count-down-" in run.id
        data = json.loads((run.path / "run.json").read_text())
    assert data["schema"] == 1
    assert data["kind"] == "train"
    assert data["name"] == "Count Down!"
    assert data["status"] == "created"
    assert data["config"] == {"a": 1}
    assert data["versions"]["python"].startswith("3.")
    assert "rllm-core" in data["versions"]["packages"]


def test_runs_made_in_one_second_have_folders_of_their_own(tmp_path: Path) -> None:
    runs = [create(tmp_path) for _ in range(5)]
    assert len({run.id for run in runs}) == 5
    for run in runs:
        run.close()


@pytest.mark.parametrize("manifest", [{"status": "x"}, {"versions": {}}, {"a": object()}, {"a": {1, 2}}])
def test_a_manifest_that_clashes_or_is_no_json_is_refused_and_leaves_nothing(
    tmp_path: Path, manifest: dict[str, Any]
) -> None:
    with pytest.raises(StoreError, match="manifest"):
        create(tmp_path, **manifest)
    assert list(tmp_path.iterdir()) == []


def test_episodes_come_back_as_they_were_in_the_order_in_which_they_were_added(tmp_path: Path) -> None:
    made = [episode(f"a:{number}/é", number, reward=float(number)) for number in range(30)]
    with create(tmp_path) as run:
        run.add_episode(made[0], step=1, split="train")
        run.add_episodes(made[1:20], step=1, split="train")
        run.add_episodes(made[20:25], step=2, split="train")
        run.add_episodes(made[25:], step=None, split="eval")
        assert list(run.episodes()) == made
    reopened = RunStore.open(run.path)
    assert list(reopened.episodes(split="train")) == made[:25]
    assert list(reopened.episodes(split="train", step=2)) == made[20:25]
    assert list(reopened.episodes(split="eval")) == made[25:]
    assert list(reopened.episodes(split="none")) == []
    assert reopened.count_episodes() == {"train": {"graded": 25}, "eval": {"graded": 5}}


def test_changing_an_episode_after_it_was_added_changes_nothing_on_disk(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        mine = episode()
        run.add_episode(mine, step=1, split="train")
        mine.metadata["late"] = True
        (stored,) = run.episodes()
    assert stored.metadata == {}


def test_an_attempt_that_is_made_again_replaces_the_earlier_one(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.add_episode(episode("a:1", 0, status=EpisodeStatus.INFRA_ERROR), step=None, split="eval")
        run.add_episode(episode("a", 1), step=None, split="eval")
        again = episode("a:1", 0, reward=1.0)
        run.add_episode(again, step=None, split="eval")
        assert {each.id for each in run.episodes()} >= {again.id}
        assert run.count_episodes() == {"eval": {"graded": 2}}


def test_what_failed_for_reasons_outside_the_agent_is_not_finished(tmp_path: Path) -> None:
    """I11."""
    with create(tmp_path) as run:
        for attempt, status in enumerate(EpisodeStatus):
            run.add_episode(episode("t:0", attempt, status=status), step=None, split="eval")
        run.add_episode(episode("t\ud83d", 0), step=None, split="eval")
        run.add_episode(episode("other", 0), step=None, split="validation")
        done = run.finished("eval")
    unfinished = {EpisodeStatus.INFRA_ERROR, EpisodeStatus.CANCELLED}
    expected = {RolloutKey("t:0", number) for number, status in enumerate(EpisodeStatus) if status not in unfinished}
    assert done == expected | {RolloutKey("t\ud83d", 0)}


def test_metrics_come_back_by_step_with_nan_and_infinity(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.add_metrics(2, {"b": math.inf, "a": 1})
        run.add_metrics(1, {"a": math.nan})
        run.add_metrics(2, {"c": -0.5, "a": 3.0})
        run.add_metrics(0, {"accuracy": 0.5}, kind="validation")
        run.add_metrics(5, {})
        train = run.metrics()
        assert math.isnan(train[0].pop("a"))
        assert train == [{"step": 1}, {"step": 2, "a": 3.0, "b": math.inf, "c": -0.5}]
        assert run.metrics("validation") == [{"step": 0, "accuracy": 0.5}]
        assert run.metrics("other") == []


def test_people_can_read_the_metrics_as_json_lines(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.add_metrics(1, {"loss": 0.5, "kl": math.nan})
        run.add_metrics(2, {"loss": -math.inf})
        run.flush()
        lines = (run.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail) for line in lines] == [
        {"kind": "train", "step": 1, "loss": 0.5, "kl": "NaN"},
        {"kind": "train", "step": 2, "loss": "-Infinity"},
    ]


def test_a_torn_last_line_is_dropped_and_the_next_one_stands_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """I13."""
    with create(tmp_path) as run:
        run.add_metrics(1, {"loss": 0.5})
    path = run.path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"kind": "train", "st')
    with caplog.at_level(logging.WARNING), RunStore.open(run.path, write=True) as again:
        again.add_metrics(2, {"loss": 0.25})
    assert "incomplete" in caplog.text
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]


def test_events_come_back_in_order(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.add_event("error", {"message": "é"})
        run.add_event("summary", {"accuracy": 0.5})
        assert [event["kind"] for event in run.events()] == ["error", "summary"]
        assert run.events("error")[0]["data"] == {"message": "é"}
        with pytest.raises(StoreError, match="plain JSON"):
            run.add_event("bad", {"a": object()})


def test_rewinding_forgets_what_came_after_a_step_and_nothing_else(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        for step in range(4):
            run.add_episode(episode(attempt=step), step=step, split="train")
            run.add_metrics(step, {"loss": float(step)})
        run.add_metrics(3, {"accuracy": 1.0}, kind="validation")
        run.add_episode(episode(), step=None, split="eval")
        run.add_event("kept", {})
        run.rewind(1)
        assert [each.attempt for each in run.episodes(split="train")] == [0, 1]
        assert len(list(run.episodes(split="eval"))) == 1
        assert [row["step"] for row in run.metrics()] == [0, 1]
        assert run.metrics("validation") == []
        assert len(run.events()) == 1
        run.add_metrics(2, {"loss": 9.0})
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(0, 0.0), (1, 1.0), (2, 9.0)]


def test_the_status_is_recorded_after_everything_before_it(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.add_episode(episode(), step=1, split="train")
        run.set_status("finished")
        other = RunStore.open(run.path)
        assert other.manifest["status"] == "finished"
        assert len(list(other.episodes())) == 1
    assert RunStore.open(run.path).manifest["updated_at"]


def test_a_run_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        reading = RunStore.open(run.path)
        for count in range(1, 5):
            run.add_episode(episode(attempt=count), step=1, split="train")
            run.flush()
            assert len(list(reading.episodes())) == count


def test_a_second_writer_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    import os

    with create(tmp_path) as run:
        with pytest.raises(StoreError, match=f"being written by process {os.getpid()}"):
            RunStore.open(run.path, write=True)
        code = "import sys; from pathlib import Path; from rllm.store import RunStore\n"
        code += "RunStore.open(Path(sys.argv[1]), write=True)"
        command = [sys.executable, "-c", code, str(run.path)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "being written by process" in result.stderr
    RunStore.open(run.path, write=True).close()


def test_a_run_that_is_open_for_reading_cannot_be_written(tmp_path: Path) -> None:
    create(tmp_path).close()
    run = RunStore.open(next(tmp_path.iterdir()))
    for write in (
        lambda: run.add_episode(episode(), step=1, split="train"),
        lambda: run.add_metrics(1, {"a": 1.0}),
        lambda: run.set_status("finished"),
        lambda: run.rewind(0),
    ):
        with pytest.raises(StoreError, match="reading only"):
            write()
    run.close()


def test_closing_twice_is_harmless_and_nothing_is_written_afterwards(tmp_path: Path) -> None:
    run = create(tmp_path)
    run.add_episode(episode(), step=1, split="train")
    run.close()
    run.close()
    assert len(list(run.episodes())) == 1
    with pytest.raises(StoreError, match="is closed"):
        run.add_episode(episode(attempt=1), step=1, split="train")


def test_episodes_are_added_all_or_none(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        bad = episode(attempt=1)
        bad.reward = "high"  # type: ignore[assignment]  # a flow can do this
        with pytest.raises(StoreError, match="cannot be stored"):
            run.add_episodes([episode(), bad], step=1, split="train")
        assert list(run.episodes()) == []


def test_several_threads_may_add_at_once(tmp_path: Path) -> None:
    with create(tmp_path) as run:

        def add(task: str) -> None:
            for attempt in range(50):
                run.add_episode(episode(task, attempt), step=1, split="train")

        threads = [threading.Thread(target=add, args=(str(number),)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(run.finished("train")) == 200


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: (path / "run.json").unlink(), "is not a run"),
        (lambda path: (path / "run.json").write_text("{"), "cannot read"),
        (lambda path: (path / "run.json").write_text('{"schema": 99}'), "schema version 99"),
        (lambda path: (path / "run.json").write_text("[]"), "schema version None"),
    ],
)
def test_a_folder_that_is_no_run_of_this_version_is_refused(tmp_path: Path, spoil: Any, message: str) -> None:
    create(tmp_path).close()
    (path,) = tmp_path.iterdir()
    spoil(path)
    with pytest.raises(StoreError, match=message):
        RunStore.open(path)


def test_a_damaged_or_foreign_database_is_one_clear_error(tmp_path: Path) -> None:
    create(tmp_path).close()
    (path,) = tmp_path.iterdir()
    connection = sqlite3.connect(path / "run.db")
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(StoreError, match="schema version 7"):
        list(RunStore.open(path).episodes())
    with pytest.raises(StoreError, match="schema version 7"):
        RunStore.open(path, write=True)
    (path / "run.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        RunStore.open(path).metrics()
    with pytest.raises(StoreError, match="not a database"):
        RunStore.open(path, write=True)
    (path / "run.db").unlink()
    with pytest.raises(StoreError, match="unable to open"):
        RunStore.open(path).finished("eval")


def test_a_refused_open_leaves_the_run_free_for_others(tmp_path: Path) -> None:
    create(tmp_path).close()
    (path,) = tmp_path.iterdir()
    good = (path / "run.db").read_bytes()
    (path / "run.db").write_bytes(b"x" * 5000)
    with pytest.raises(StoreError):
        RunStore.open(path, write=True)
    (path / "run.db").write_bytes(good)
    RunStore.open(path, write=True).close()


def test_a_metrics_file_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    create(tmp_path).close()
    (path,) = tmp_path.iterdir()
    (path / "metrics.jsonl").mkdir()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"cannot open run .* Is a directory"):
            RunStore.open(path, write=True)


def test_a_root_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(StoreError, match="run folder"):
        create(tmp_path / "runs")
