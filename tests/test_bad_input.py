"""Every mistake is one clear line and an exit status, and loses nothing that was finished."""

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["eval", "countdwn"], "no benchmark is called 'countdwn'; did you mean 'countdown'?"),
        (["eval", "countdown", "--agent", "reakt"], "no harness is called 'reakt'; did you mean 'react'?"),
        (["eval", "countdown", "--backend", "locla"], "no backend is called 'locla'; did you mean 'local'?"),
        (["eval", "countdown", "--model", "no/such-model"], "no/such-model"),
        (["eval", "countdown", "--model", "./missing"], "missing"),
        (["eval", "countdown", "samplng.temperature=1"], "sampling"),
        (["eval", "countdown", "--split", "tets"], "tets"),
        (["eval", "countdown", "--limit", "0"], "limit"),
        (["eval", "countdown", "--tasks", "nope"], "no task has the id 'nope'"),
        (["eval", "countdown", "benchmark.options.size=3"], "size"),
        (["eval"], "name a benchmark"),
        (["eval", "gsm8k"], "gsm8k"),
        (["eval", "countdown", "--config", "missing.yaml"], "there is no configuration file 'missing.yaml'"),
        (["eval", "countdown", "--resume", "nope"], "--resume goes on with the run's own configuration"),
        (["eval", "--resume", "nope"], "no run is called 'nope'"),
        (["eval", "countdown", "--model", "m", "--base-url", "http://127.0.0.1:9", "--api-key-env", "NOPE"], "'NOPE'"),
        (["train", "countdown", "--estimator", "grop"], "did you mean 'grpo'?"),
        (["train", "countdown", "algoritm.estimator=grpo"], "algorithm"),
        (["train", "countdown", "trainer.steps=many"], "trainer.steps"),
        (["train", "countdown", "algorithm.loss=ppo"], "ppo_clip"),
        (["train", "countdown", "rollout.group_size=1", "--estimator", "rloo"], "group_size=1"),
        (["train", "--resume", "nope"], "no run is called 'nope'"),
        (["runs", "show", "nope"], "no run is called 'nope'"),
        (["evla", "countdown"], "no command is called 'evla'; did you mean 'eval'?"),
        (["eval", "countdown", "--modle", "x"], "--model"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line(rllm: Any, words: list[str], message: str) -> None:
    assert message in rllm.error(*words)


def test_all_faults_of_a_configuration_are_reported_at_once(rllm: Any) -> None:
    _, err = rllm.run("train", "countdown", "rollout.temperature=0", "rollout.top_k=5", "--estimator", "nope", status=2)
    assert [line.startswith("error: ") for line in err.splitlines()] == [True, True, True]
    assert list(rllm.runs.glob("*")) == []


def test_a_model_directory_without_a_chat_template_is_refused(rllm: Any, tmp_path: Path) -> None:
    out, _ = rllm.run("train", "countdown", "trainer.steps=1", "validation.at_start=false", "--json")
    folder = Path(json.loads(out)["model"]).resolve()
    copy = tmp_path / "without template"
    subprocess.run(["cp", "-r", str(folder), str(copy)], check=True)
    for name in ("chat_template.jinja", "chat_template.json"):
        (copy / name).unlink(missing_ok=True)
    config = json.loads((copy / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (copy / "tokenizer_config.json").write_text(json.dumps(config))
    assert "chat template" in rllm.error("eval", "countdown", "--model", str(copy), "--limit", "2")


def test_an_empty_data_set_is_refused(rllm: Any, tmp_path: Path) -> None:
    empty = tmp_path / "test.jsonl"
    empty.write_text("")
    assert "test.jsonl" in rllm.error("eval", "gsm8k", f"benchmark.options.path={empty}")


def test_a_port_in_use_is_one_line(rllm: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert str(port) in rllm.error("eval", "countdown", "--limit", "2", f"gateway.port={port}", status=1)


def test_a_run_folder_that_cannot_be_made_is_one_line(rllm: Any) -> None:
    (rllm.home / "file").write_text("")
    assert "file" in rllm.error("eval", "countdown", "--limit", "2", status=1, RLLM_RUNS=str(rllm.home / "file"))


def test_a_prompt_longer_than_the_context_is_a_recorded_status(rllm: Any, tmp_path: Path) -> None:
    row = '{"question": "' + "one two three " * 3000 + '", "answer": "#### 1"}\n'
    (tmp_path / "test.jsonl").write_text(row)
    words = ["eval", "gsm8k", f"benchmark.options.path={tmp_path / 'test.jsonl'}", "--max-tokens", "8", "--json"]
    result = json.loads(rllm.run(*words, status=1)[0])
    assert result["terminations"] == {"context_length": 1}
    assert result["statuses"] == {"agent_error": 1}
    assert result["accuracy"] is None


def test_a_server_that_is_down_is_an_infrastructure_error_not_a_zero(rllm: Any) -> None:
    words = ["eval", "countdown", "--limit", "2", "--model", "m", "--base-url", "http://127.0.0.1:9", "max_retries=0"]
    result = json.loads(rllm.run(*words, "--json", status=1)[0])
    assert result["statuses"] == {"infra_error": 2}
    assert result["accuracy"] is None


def test_a_full_disk_ends_the_run_with_one_line_and_keeps_what_was_finished(rllm: Any, tmp_path: Path) -> None:
    disk = tmp_path / "small disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    try:
        message = rllm.error("eval", "countdown", "--attempts", "40", status=1, RLLM_RUNS=str(disk))
        assert "space" in message or "full" in message
        (run,) = disk.iterdir()
        assert rllm.run("runs", "show", str(run))[0].startswith("run ")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
