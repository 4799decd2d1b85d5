"""The environment and the user's file: where things are, and keys that nobody else can read."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm.config.environment import ModelDefaults, UserFile, read_environment, runs_folder
from rllm.errors import ConfigError


def test_runs_are_kept_in_the_home_folder_unless_told_otherwise(tmp_path: Path) -> None:
    assert read_environment({"RLLM_HOME": str(tmp_path)}).runs == tmp_path / "runs"
    assert read_environment({"RLLM_HOME": str(tmp_path), "RLLM_RUNS": "/elsewhere"}).runs == Path("/elsewhere")
    assert read_environment({}).home == Path("~/.rllm").expanduser()
    assert read_environment({"RLLM_HOME": "", "RLLM_RUNS": ""}).runs == Path("~/.rllm/runs").expanduser()


def test_the_process_environment_is_read_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLLM_RUNS", str(tmp_path))
    assert runs_folder() == tmp_path


def test_a_relative_folder_becomes_absolute_so_that_it_survives_a_change_of_directory() -> None:
    assert read_environment({"RLLM_RUNS": "runs"}).runs == Path.cwd() / "runs"


def test_without_a_file_there_are_no_defaults(tmp_path: Path) -> None:
    environment = read_environment({"RLLM_HOME": str(tmp_path / "none")})
    assert environment.read_user_file() == UserFile()
    assert environment.eval_defaults() == {}


def test_what_is_written_is_read_back_and_only_the_user_can_read_it(tmp_path: Path) -> None:
    environment = read_environment({"RLLM_HOME": str(tmp_path / "home")})
    content = UserFile(
        model=ModelDefaults(name="gpt-5", base_url="https://h/v1", api_key_env="OPENAI_API_KEY"),
        keys={"OPENAI_API_KEY": "sk-1"},
    )
    environment.write_user_file(content)
    environment.write_user_file(content)
    assert environment.read_user_file() == content
    assert stat.S_IMODE(environment.user_file.stat().st_mode) == 0o600
    assert [path.name for path in environment.home.iterdir()] == ["config.toml"]
    assert environment.eval_defaults() == {
        "model": {"name": "gpt-5", "base_url": "https://h/v1", "api_key_env": "OPENAI_API_KEY"}
    }


def test_a_file_that_others_could_read_is_closed_to_them_on_the_next_write(tmp_path: Path) -> None:
    environment = read_environment({"RLLM_HOME": str(tmp_path)})
    environment.user_file.write_text("")
    environment.user_file.chmod(0o644)
    environment.write_user_file(UserFile())
    assert stat.S_IMODE(environment.user_file.stat().st_mode) == 0o600


@given(st.dictionaries(st.text(), st.text(), max_size=4), st.text(min_size=1))
def test_any_text_survives_the_file(tmp_path_factory: pytest.TempPathFactory, keys: dict[str, str], name: str) -> None:
    environment = read_environment({"RLLM_HOME": str(tmp_path_factory.mktemp("home"))})
    content = UserFile(model=ModelDefaults(name=name), keys=keys)
    environment.write_user_file(content)
    assert environment.read_user_file() == content
    assert tomllib.loads(environment.user_file.read_text())["model"]["name"] == name


def test_a_key_comes_from_its_variable_else_from_the_file(tmp_path: Path) -> None:
    stored = read_environment({"RLLM_HOME": str(tmp_path)})
    stored.write_user_file(UserFile(keys={"A_KEY": "stored"}))
    assert stored.api_key("A_KEY") == "stored"
    assert read_environment({"RLLM_HOME": str(tmp_path), "A_KEY": "set"}).api_key("A_KEY") == "set"
    assert stored.api_key(None) is None
    with pytest.raises(ConfigError, match="'B_KEY' is not set"):
        stored.api_key("B_KEY")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\nname = 3\n", r"model\.name: .*string"),
        ("[model]\nbase_url = 'x'\n", r"model\.name: .*required"),
        ("[modell]\nname = 'x'\n", "modell"),
        ("[model\n", "cannot read"),
    ],
)
def test_a_faulty_file_is_named_with_its_fault(tmp_path: Path, text: str, message: str) -> None:
    environment = read_environment({"RLLM_HOME": str(tmp_path)})
    environment.user_file.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        environment.read_user_file()
    assert "config.toml" in str(caught.value)


def test_keys_are_never_shown(tmp_path: Path) -> None:
    assert "sk-1" not in repr(UserFile(keys={"A": "sk-1"}))
    assert "sk-1" not in repr(read_environment({"RLLM_HOME": str(tmp_path), "A": "sk-1"}))


def test_a_home_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    environment = read_environment({"RLLM_HOME": str(tmp_path / "home")})
    with pytest.raises(ConfigError, match="cannot write"):
        environment.write_user_file(UserFile())
    assert os.listdir(tmp_path) == ["home"]
