"""Runs are found by path, id, start of an id, or name; a spoilt one does not hide the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rllm.errors import UnknownName
from rllm.store import RunStore, find_run, list_runs


def make(root: Path, name: str, created_at: str = "", status: str = "finished") -> RunStore:
    with RunStore.create(root, kind="eval", name=name, manifest={}) as run:
        run.set_status(status)
    if created_at:
        file = run.path / "run.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "created_at": created_at}))
    return run


def test_no_root_means_no_runs(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "none") == []


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    make(tmp_path, "old", "2026-01-01T00:00:00+00:00")
    make(tmp_path, "new", "2026-02-01T00:00:00+00:00")
    (tmp_path / "something else").mkdir()
    (tmp_path / "file").write_text("")
    assert [(run.name, run.kind, run.status) for run in list_runs(tmp_path)] == [
        ("new", "eval", "finished"),
        ("old", "eval", "finished"),
    ]


def test_a_spoilt_run_is_listed_as_unreadable(tmp_path: Path) -> None:
    good, bad = make(tmp_path, "good"), make(tmp_path, "bad")
    (bad.path / "run.json").write_text("{")
    assert {run.id: run.status for run in list_runs(tmp_path)} == {good.id: "finished", bad.id: "unreadable"}


def test_a_run_that_says_it_is_running_is_believed_while_somebody_writes_it(tmp_path: Path) -> None:
    run = RunStore.create(tmp_path, kind="train", name="x", manifest={})
    run.set_status("running")
    assert list_runs(tmp_path)[0].status == "running"
    run.close()
    assert list_runs(tmp_path)[0].status == "killed"


def test_a_run_is_found_by_path_id_start_of_id_or_name(tmp_path: Path) -> None:
    run = make(tmp_path, "count down")
    make(tmp_path, "gsm8k")
    for reference in (run.path, str(run.path), run.id, "count down", run.id[:-2]):
        assert find_run(tmp_path, reference).resolve() == run.path.resolve()


def test_an_unknown_run_names_the_nearest(tmp_path: Path) -> None:
    make(tmp_path, "countdown")
    with pytest.raises(UnknownName, match=r"no run is called 'contdown'.*did you mean 'countdown'"):
        find_run(tmp_path, "contdown")
    with pytest.raises(UnknownName, match="rllm runs list"):
        find_run(tmp_path, "zzzzzzz")
    with pytest.raises(UnknownName):
        find_run(tmp_path, "")


def test_an_ambiguous_name_lists_the_runs_that_have_it(tmp_path: Path) -> None:
    first, second = make(tmp_path, "same"), make(tmp_path, "same")
    with pytest.raises(UnknownName, match="2 runs are called 'same'") as caught:
        find_run(tmp_path, "same")
    assert first.id in str(caught.value)
    assert second.id in str(caught.value)
