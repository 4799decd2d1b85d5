"""A configuration is read from file, flags and words; every fault is reported at once and says what was meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm.config import (
    EvalConfig,
    Source,
    TrainConfig,
    config_from_mapping,
    config_to_json,
    config_to_yaml,
    load_eval_config,
    load_train_config,
)
from rllm.errors import ConfigError


def faults_of(*words: str, file: Path | None = None, flags: dict[str, Any] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_train_config(file, words, flags)
    return caught.value.faults


def write(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text)
    return path


def test_without_anything_every_value_is_the_default() -> None:
    loaded = load_train_config()
    assert loaded.config == TrainConfig()
    assert loaded.sources == {}


def test_words_beat_flags_which_beat_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "trainer: {steps: 1, seed: 1, tasks_per_step: 1}\nrollout:\n  group_size: 2\n")
    flags = {"trainer.steps": 2, "trainer.seed": 2, "rollout.top_k": None}
    loaded = load_train_config(file, ["trainer.steps=3", "optimizer.lr=1e-3"], flags)
    assert loaded.config.trainer.steps == 3
    assert loaded.config.trainer.seed == 2
    assert loaded.config.trainer.tasks_per_step == 1
    assert loaded.config.optimizer.lr == 1e-3
    assert loaded.sources == {
        "trainer.steps": Source.COMMAND_LINE,
        "trainer.seed": Source.COMMAND_LINE,
        "trainer.tasks_per_step": Source.FILE,
        "rollout.group_size": Source.FILE,
        "optimizer.lr": Source.COMMAND_LINE,
    }


def test_the_later_of_two_words_wins() -> None:
    assert load_train_config(None, ["trainer.steps=3", "trainer.steps=4"]).config.trainer.steps == 4


def test_keys_may_be_nested_dotted_or_both(tmp_path: Path) -> None:
    file = write(tmp_path, "trainer.steps: 5\nalgorithm:\n  filter.min_group: 3\n")
    config = load_train_config(file, ["optimizer={lr: 0.5, eps: 1e-6}"]).config
    assert (config.trainer.steps, config.algorithm.filter.min_group) == (5, 3)
    assert (config.optimizer.lr, config.optimizer.eps) == (0.5, 1e-6)


def test_a_section_whose_lines_are_all_commented_out_is_empty(tmp_path: Path) -> None:
    assert load_train_config(write(tmp_path, "trainer:\n  # steps: 3\n")).config == TrainConfig()
    assert load_train_config(write(tmp_path, "# nothing\n")).config == TrainConfig()


def test_options_of_plugins_are_free_and_merge() -> None:
    words = ["benchmark.options.numbers=3", "benchmark.options.range.low=1", "benchmark.options={range: {high: 9}}"]
    loaded = load_train_config(None, words)
    assert loaded.config.benchmark.options == {"numbers": 3, "range": {"low": 1, "high": 9}}
    assert set(loaded.sources) == {
        "benchmark.options.numbers",
        "benchmark.options.range.low",
        "benchmark.options.range.high",
    }


def test_a_value_replaces_options_below_it_and_the_other_way_round() -> None:
    words = ["backend.options.a.b=1", "backend.options.a=2"]
    assert load_train_config(None, words).config.backend.options == {"a": 2}
    assert load_train_config(None, words[::-1]).config.backend.options == {"a": {"b": 1}}
    assert set(load_train_config(None, words[::-1]).sources) == {"backend.options.a.b"}


def test_a_whole_number_is_also_a_float_and_numbers_may_have_exponents() -> None:
    config = load_train_config(None, ["rollout.temperature=1", "optimizer.lr=3E-4"]).config
    assert isinstance(config.rollout.temperature, float)
    assert config.optimizer.lr == 3e-4


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("algoritm.lr=1", "optimizer.lr"),
        ("algoritm.estimator=rloo", "algorithm.estimator"),
        ("lr=1e-3", "optimizer.lr"),
        ("trainer.step=3", "trainer.steps"),
        ("rolout.groupsize=4", "rollout.group_size"),
        ("group_size=4", "rollout.group_size"),
        ("trainer.Steps=4", "trainer.steps"),
        ("algoritm.filter.drop_unform=false", "algorithm.filter.drop_uniform"),
        ("optimiser={beta: [0.9, 0.99]}", "optimizer.betas"),
        ("benchmark.option.numbers=3", "benchmark.options"),
    ],
)
def test_an_unknown_key_names_the_nearest(word: str, meant: str) -> None:
    (fault,) = faults_of(word)
    assert "no key is called" in fault
    assert f"did you mean '{meant}" in fault


def test_a_key_like_nothing_gets_no_suggestion() -> None:
    (fault,) = faults_of("zzzz=1")
    assert fault == "no key is called 'zzzz' (command line)"


def test_an_unknown_section_of_a_file_is_reported_key_by_key(tmp_path: Path) -> None:
    faults = faults_of(file=write(tmp_path, "optimiser:\n  lr: 1\n  beta: 2\n"))
    assert [fault.split("did you mean ")[1] for fault in faults] == ["'optimizer.lr'?", "'optimizer.betas'?"]
    assert all("(file)" in fault for fault in faults)


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("trainer.steps=abc", ["trainer.steps", "'abc'", "command line", "integer"]),
        ("trainer.steps=1.5", ["trainer.steps", "1.5", "integer"]),
        ("trainer.steps=true", ["trainer.steps", "True", "integer"]),
        ("trainer.steps=0", ["trainer.steps", "0", "greater than or equal to 1"]),
        ("trainer.steps=", ["trainer.steps", "None", "integer"]),
        ("optimizer.lr=.nan", ["optimizer.lr", "nan", "finite"]),
        ("optimizer.lr='1'", ["optimizer.lr", "'1'", "number"]),
        ("optimizer.schedule=cosin", ["optimizer.schedule", "'cosin'", "'constant', 'linear' or 'cosine'"]),
        ("optimizer.betas=[0.9]", ["optimizer.betas", "[0.9]", "more values"]),
        ("optimizer.betas=[1,2,3]", ["optimizer.betas", "[1, 2, 3]", "2 values"]),
        ("rollout.top_p=1.5", ["rollout.top_p", "1.5", "less than or equal to 1"]),
        ("algorithm.params.clip_low=x", ["algorithm.params.clip_low", "'x'", "number"]),
        ("algorithm=grpo", ["algorithm", "'grpo'", "section", "estimator"]),
        ("benchmark.options=3", ["benchmark.options", "3", "mapping"]),
        ("benchmark.options.a..b=3", ["benchmark.options.a..b", "name after each dot"]),
        ("validation.at_start=yes", ["validation.at_start", "'yes'", "boolean"]),
        ("algorithm.filter.drop_terminations=[late]", ["drop_terminations.0", "'late'", "'deadline'"]),
        ("gateway.port=70000", ["gateway.port", "70000", "65535"]),
        ("trainer.steps", ["'trainer.steps'", "key=value"]),
        ("=3", ["'=3'", "key=value"]),
        ("trainer.steps=[1", ["trainer.steps", "'[1'", "YAML"]),
    ],
)
def test_a_wrong_value_is_shown_with_what_was_expected(word: str, parts: list[str]) -> None:
    (fault,) = faults_of(word)
    assert all(part in fault for part in parts), fault


def test_every_fault_is_reported_at_once(tmp_path: Path) -> None:
    file = write(tmp_path, "trainer: {steps: x}\nrolout: {top_k: 1}\n")
    faults = faults_of("optimizer.lr=-1", "foo", file=file, flags={"gateway.port": -1})
    assert len(faults) == 5
    assert sum("(file)" in fault for fault in faults) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [("- a\n- b\n", "expected sections"), ("a: [", "is not YAML"), ("trainer: {steps: 1}\ntrainer: {}\n", "twice")],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, text: str, message: str) -> None:
    (fault,) = faults_of(file=write(tmp_path, text))
    assert message in fault
    assert "run.yaml" in fault


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    assert "no configuration file" in faults_of(file=tmp_path / "none.yaml")[0]
    assert "cannot read" in faults_of(file=tmp_path)[0]
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xff")
    assert "cannot read" in faults_of(file=tmp_path / "bytes.yaml")[0]


def test_values_that_are_not_plain_data_are_refused() -> None:
    (fault,) = faults_of(flags={"benchmark.options.path": Path("/x")})
    assert "expected plain data" in fault


def test_suggestions_fill_in_only_what_nobody_set() -> None:
    asked: list[tuple[str, str]] = []

    def suggest(backend: str, model: str) -> dict[str, Any]:
        asked.append((backend, model))
        return {"optimizer.lr": 3e-3, "rollout.max_tokens": 24, "backend.options.dtype": "float32"}

    loaded = load_train_config(
        None, ["rollout.max_tokens=8", "backend.options={dtype: bf16}"], {"model.name": "tiny"}, suggest=suggest
    )
    assert asked == [("local", "tiny")]
    assert loaded.config.optimizer.lr == 3e-3
    assert loaded.config.rollout.max_tokens == 8
    assert loaded.config.backend.options == {"dtype": "bf16"}
    assert loaded.sources["optimizer.lr"] is Source.MODEL
    assert loaded.sources["rollout.max_tokens"] is Source.COMMAND_LINE


def test_a_model_name_of_the_wrong_type_is_a_fault_not_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"model\.name: got 3"):
        load_train_config(None, ["model.name=3"], suggest=lambda backend, model: {"optimizer.lr": 1.0})


def test_the_users_model_applies_as_a_whole_or_not_at_all() -> None:
    defaults = {"model": {"name": "gpt", "base_url": "http://h/v1", "api_key_env": "KEY"}}
    loaded = load_eval_config(user_defaults=defaults)
    assert loaded.config.model.base_url == "http://h/v1"
    assert loaded.sources["model.name"] is Source.USER_DEFAULT
    assert load_eval_config(None, ["model.name=embedded"], user_defaults=defaults).config.model.base_url is None


def test_a_server_needs_the_name_of_one_of_its_models() -> None:
    with pytest.raises(ConfigError, match="which of the server's models"):
        load_eval_config(None, ["model.base_url=http://h/v1"])


def test_a_mapping_in_python_may_be_nested_or_dotted() -> None:
    config = config_from_mapping(TrainConfig, {"trainer.steps": 3, "optimizer": {"betas": (0.8, 0.9)}})
    assert config.trainer.steps == 3
    assert config.optimizer.betas == (0.8, 0.9)
    with pytest.raises(ConfigError, match=r"trainer\.stepz.*python.*trainer\.steps"):
        config_from_mapping(TrainConfig, {"trainer.stepz": 3})


trainings = st.builds(
    lambda lr, betas, schedule, options, params, steps, terminations: {
        "optimizer": {"lr": lr, "betas": betas, "schedule": schedule},
        "benchmark": {"options": options},
        "algorithm": {"params": params, "filter": {"drop_terminations": terminations}},
        "trainer": {"steps": steps},
    },
    st.floats(0, 1e300),
    st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)),
    st.sampled_from(["constant", "linear", "cosine"]),
    st.dictionaries(
        st.text(min_size=1, max_size=5),
        st.one_of(st.none(), st.text(max_size=5), st.integers(), st.floats(allow_nan=False), st.lists(st.booleans())),
        max_size=3,
    ),
    st.dictionaries(st.text(min_size=1, max_size=5), st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    st.integers(1, 10**9),
    st.lists(st.sampled_from(["max_tokens", "deadline"]), max_size=2),
)


@given(trainings)
def test_a_dump_restores_an_equal_configuration(data: dict[str, Any]) -> None:
    config = config_from_mapping(TrainConfig, data)
    assert config_from_mapping(TrainConfig, json.loads(json.dumps(config_to_json(config)))) == config
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config


@given(trainings)
def test_a_dumped_file_restores_an_equal_configuration(tmp_path_factory: Any, data: dict[str, Any]) -> None:
    config = config_from_mapping(TrainConfig, data)
    path = tmp_path_factory.mktemp("config") / "run.yaml"
    path.write_text(config_to_yaml(config), encoding="utf-8", newline="")
    assert load_train_config(path).config == config


def test_an_evaluation_restores_too() -> None:
    config = load_eval_config(None, ["tasks=['a:1', '007', '1e5']", "model={name: m, base_url: 'http://h/v1'}"]).config
    assert config.tasks == ("a:1", "007", "1e5")
    assert config_from_mapping(EvalConfig, config_to_json(config)) == config


def test_a_configuration_cannot_be_changed() -> None:
    config = TrainConfig()
    with pytest.raises(ValueError, match="frozen"):
        config.trainer.steps = 3  # type: ignore[misc]  # that is the point
