"""The commands that do the work, in this process, on the table backend: eval, train, runs and model."""

from __future__ import annotations

import json
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from rllm.cli import main

BENCHMARK = '''
import asyncio
import os
import signal

import aiohttp

import rllm
from rllm.types import EvalOutput, Task


class Digits:
    """Say digits."""

    revision = "1"

    def tasks(self, split, *, limit=None, seed=0):
        return [Task(id=f"{split}:{i}", instruction=f"say {i}") for i in range(limit or 6)]

    @property
    def grader(self):
        return self

    def grade(self, task, episode):
        text = episode.final_text()
        share = sum(c.isdigit() for c in text) / max(1, len(text))
        return EvalOutput(reward=share, is_correct=share > 0)


@rllm.rollout
async def ask(task, config):
    body = {"model": config.model, "messages": [{"role": "user", "content": task.instruction}]}
    headers = {"Authorization": f"Bearer {config.api_key}"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{config.base_url}/chat/completions", json=body, headers=headers) as response:
            response.raise_for_status()


@rllm.rollout
async def interrupting(task, config):
    """Presses Ctrl-C at its third task."""
    await ask.function(task, config)
    if task.id.endswith(":3") and not os.environ.get("CALM"):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)
'''
COMMON = ("cli_probe:Digits", "--model", "table", "--backend", "rllm.testing.table:TableBackend")
TRAIN = (
    *COMMON,
    *("--agent", "cli_probe:ask", "rollout.group_size=4", "rollout.max_tokens=4", "trainer.steps=2"),
    *("trainer.tasks_per_step=2", "optimizer.lr=8.0", "optimizer.grad_clip=0", "validation.temperature=1.0"),
    "benchmark.val_limit=4",
)


class Done(NamedTuple):
    status: int
    out: str
    err: str


Rllm = Callable[..., Done]


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "cli_probe.py").write_text(BENCHMARK)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("cli_probe", None)


@pytest.fixture
def rllm(probe: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Rllm:
    """Runs a command as `rllm` would."""
    monkeypatch.setenv("RLLM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RLLM_RUNS", raising=False)

    def run(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, captured.out, captured.err)

    return run


def test_eval_reports_and_tells_where_the_run_is(rllm: Rllm) -> None:
    done = rllm("eval", *COMMON, "--agent", "cli_probe:ask", "--limit", "4", "--temperature", "1", "--max-tokens", "6")
    assert done.status == 0, done.err
    assert "accuracy" in done.out
    assert "4 graded" in done.out
    shown = rllm("runs", "show", done.out.split("run ")[1].split()[0])
    assert "status    finished" in shown.out
    assert "go on" not in shown.out


def test_eval_json_is_json_alone(rllm: Rllm) -> None:
    done = rllm("eval", *COMMON, "--agent", "cli_probe:ask", "--limit", "3", "--max-tokens", "4", "--json")
    report = json.loads(done.out)
    assert (report["episodes"], report["statuses"]) == (3, {"graded": 3})
    assert (Path(report["path"]) / "run.json").is_file()


def test_ctrl_c_in_an_evaluation_says_how_to_go_on_and_going_on_completes_it(
    rllm: Rllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = rllm("eval", *COMMON, "--agent", "cli_probe:interrupting", "--concurrency", "1", "--max-tokens", "4")
    assert done.status == 130
    line = done.err.strip().splitlines()[-1]
    assert "Go on with: rllm eval --resume " in line
    monkeypatch.setenv("CALM", "1")
    again = rllm("eval", "--resume", line.split()[-1], "--json")
    assert json.loads(again.out)["statuses"] == {"graded": 6}


def test_a_failure_of_every_rollout_is_explained(rllm: Rllm) -> None:
    done = rllm(
        *("eval", "cli_probe:Digits", "--agent", "cli_probe:ask", "--limit", "2"),
        *("--model", "x", "--base-url", "http://127.0.0.1:9/v1", "max_retries=0"),
    )
    assert "infra_error" in done.out
    assert "127.0.0.1:9" in done.out


def test_train_reports_the_run_and_the_model_and_runs_show_it(rllm: Rllm) -> None:
    done = rllm("train", *TRAIN)
    assert done.status == 0, done.err
    assert "held out" in done.out
    run = done.out.split("run  ")[1].split()[0]
    shown = rllm("runs", "show", run)
    assert "steps     2 of 2" in shown.out
    assert "model     table on rllm.testing.table:TableBackend" in shown.out
    listed = rllm("runs", "list")
    assert run in listed.out
    assert "finished" in listed.out
    evaluated = rllm("eval", *COMMON[:1], *COMMON[3:], "--model", f"run:{run}", "--agent", "cli_probe:ask", "--json")
    assert json.loads(evaluated.out)["statuses"] == {"graded": 6}


def test_train_json_is_json_alone_and_so_are_list_and_show(rllm: Rllm) -> None:
    report = json.loads(rllm("train", *TRAIN, "--json").out)
    assert report["steps"] == 2
    assert [each["step"] for each in report["validation"]] == [0, 2]
    (listed,) = json.loads(rllm("runs", "list", "--json", "--kind", "train").out)
    assert (listed["id"], listed["status"]) == (report["run"], "finished")
    assert json.loads(rllm("runs", "list", "--json", "--kind", "eval").out) == []
    shown = json.loads(rllm("runs", "show", report["run"], "--json").out)
    assert shown["steps"] == 2
    assert shown["manifest"]["config"]["trainer"]["steps"] == 2


def test_ctrl_c_in_training_says_how_to_go_on(rllm: Rllm, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [each.replace("cli_probe:ask", "cli_probe:interrupting") for each in TRAIN]
    done = rllm("train", *arguments, "trainer.tasks_per_step=6")
    assert done.status == 130, done.err
    line = done.err.strip().splitlines()[-1]
    assert "Go on with: rllm train --resume " in line
    monkeypatch.setenv("CALM", "1")
    assert json.loads(rllm("train", "--resume", line.split()[-1], "--json").out)["steps"] == 2


def test_a_run_is_resumed_with_its_own_configuration_alone(rllm: Rllm) -> None:
    run = json.loads(rllm("train", *TRAIN, "--json").out)["run"]
    done = rllm("train", "--resume", run, "trainer.steps=9")
    assert (done.status, "own configuration" in done.err) == (2, True)
    done = rllm("eval", "--resume", run)
    assert (done.status, f"rllm train --resume {run}" in done.err) == (2, True)


def test_a_killed_run_is_called_killed_by_list_and_show_alike(rllm: Rllm) -> None:
    report = json.loads(rllm("train", *TRAIN, "--json").out)
    path = Path(report["path"]) / "run.json"
    path.write_text(path.read_text().replace('"status": "finished"', '"status": "running"'))
    assert "killed" in rllm("runs", "list").out
    shown = rllm("runs", "show", report["run"])
    assert "status    killed" in shown.out
    assert f"rllm train --resume {report['run']}" in shown.out


def test_explain_shows_every_setting_with_its_source_and_what_the_backend_can_do(rllm: Rllm) -> None:
    done = rllm("train", *TRAIN, "--explain")
    assert done.status == 0
    assert "trainer.steps" in done.out
    assert "command line" in done.out
    assert "algorithm.loss = policy_gradient: ok" in done.out


def test_explain_json_holds_the_faults_and_ends_with_2(rllm: Rllm) -> None:
    done = rllm("train", *TRAIN, "algorithm.loss=ppo_clip", "--explain", "--json")
    report = json.loads(done.out)
    assert done.status == 2
    assert any("ppo_clip" in fault for fault in report["faults"])
    assert {
        key: value
        for key, value in next(each for each in report["backend"] if each["key"] == "algorithm.loss").items()
        if key != "offer"
    } == {"key": "algorithm.loss", "wanted": "ppo_clip", "supported": False}
    assert next(each for each in report["settings"] if each["key"] == "trainer.steps")["source"] == "command line"


def test_every_fault_is_a_line_of_its_own(rllm: Rllm) -> None:
    done = rllm("train", *TRAIN, "algorithm.loss=ppo_clip", "rollout.top_p=0.5")
    assert done.status == 2
    assert [line.startswith("error: ") for line in done.err.strip().splitlines()] == [True, True]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("eval", "cuontdown"), "no benchmark is called 'cuontdown'"),
        (("eval", "cli_probe:Digits", "--agent", "json:decoder"), "expected an agent function"),
        (("eval", "cli_probe:Digits", "--agent", "nope"), "no harness is called 'nope'"),
        (("eval", "cli_probe:Digits", "limt=3"), "limt"),
        (("train", "cli_probe:Digits", "--estimator", "grpoo"), "grpoo"),
        (("train", "cli_probe:Digits", "--backend", "lokal"), "lokal"),
        (("runs", "show", "nothing"), "no run is called 'nothing'"),
        (("model", "setup", "--name", ""), "name"),
        (("model", "setup"), "--name"),
    ],
)
def test_a_mistake_is_said_in_a_line_and_ends_with_2(rllm: Rllm, arguments: tuple[str, ...], text: str) -> None:
    done = rllm(*arguments)
    assert done.status == 2
    assert text in done.err
    assert "Traceback" not in done.err


def test_no_runs_are_no_error(rllm: Rllm) -> None:
    assert "no runs in" in rllm("runs", "list").out


def test_the_chosen_model_is_kept_privately_and_used_by_eval(rllm: Rllm, tmp_path: Path) -> None:
    assert "no model is chosen" in rllm("model", "show").out
    done = rllm("model", "setup", "--name", "big", "--base-url", "http://127.0.0.1:9/v1")
    file = tmp_path / "home" / "config.toml"
    assert str(file) in done.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert tomllib.loads(file.read_text())["model"]["name"] == "big"
    shown = json.loads(rllm("model", "show", "--json").out)
    assert shown["model"] == {"name": "big", "base_url": "http://127.0.0.1:9/v1", "api_key_env": None}
    evaluated = rllm("eval", "cli_probe:Digits", "--agent", "cli_probe:ask", "--limit", "1", "max_retries=0")
    assert "127.0.0.1:9" in evaluated.out


def test_a_stored_key_is_never_printed(rllm: Rllm, tmp_path: Path) -> None:
    from rllm.config.environment import ModelDefaults, UserFile, read_environment

    model = ModelDefaults(name="big", base_url="http://127.0.0.1:9/v1", api_key_env="PROBE_KEY")
    read_environment().write_user_file(UserFile(model=model, keys={"PROBE_KEY": "secret"}))
    for arguments in (("model", "show"), ("model", "show", "--json")):
        done = rllm(*arguments)
        assert "PROBE_KEY" in done.out
        assert "secret" not in done.out + done.err
    rllm("model", "setup", "--name", "small")
    assert json.loads(rllm("model", "show", "--json").out)["keys"] == ["PROBE_KEY"]
