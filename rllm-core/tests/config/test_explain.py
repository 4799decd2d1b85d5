"""`--explain` shows every key with its value, where it came from and what it means."""

from __future__ import annotations

import typing

from pydantic import BaseModel

from rllm.config import EvalConfig, Source, TrainConfig, explain, load_train_config
from rllm.config.keys import all_keys, is_section


def test_every_key_has_a_row_in_the_order_of_the_schema() -> None:
    rows = explain(load_train_config())
    assert [row.key for row in rows] == [".".join(path) for path, _ in all_keys(TrainConfig)]
    assert {row.source for row in rows} == {Source.DEFAULT}


def test_options_have_a_row_each_and_values_name_their_source() -> None:
    loaded = load_train_config(None, ["benchmark.options.range.low=1", "optimizer.lr=1e-3"], {"model.name": "tiny"})
    rows = {row.key: row for row in explain(loaded)}
    assert rows["benchmark.options.range.low"].value == 1
    assert rows["benchmark.options.range.low"].source is Source.COMMAND_LINE
    assert "benchmark.options" not in rows
    assert rows["optimizer.lr"].value == 1e-3
    assert rows["model.name"].value == "tiny"
    assert rows["trainer.steps"].source is Source.DEFAULT


def test_a_list_given_as_a_whole_names_its_source() -> None:
    rows = {row.key: row for row in explain(load_train_config(None, ["optimizer.betas=[0.5, 0.6]"]))}
    assert rows["optimizer.betas"].value == [0.5, 0.6]
    assert rows["optimizer.betas"].source is Source.COMMAND_LINE


def test_every_key_and_section_says_what_it_means() -> None:
    def check(model: type[BaseModel]) -> None:
        assert model.__doc__
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
            if is_section(field.annotation):
                check(field.annotation)

    for schema in typing.cast("list[type[BaseModel]]", [TrainConfig, EvalConfig]):
        check(schema)
