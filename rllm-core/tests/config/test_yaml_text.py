"""YAML is read as people mean it, and what is written is read back unchanged."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm.config import yaml_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("007", 7),
        ("-3", -3),
        ("no", "no"),
        ("on", "on"),
        ("True", True),
        ("false", False),
        ("1:30", "1:30"),
        ("2024-01-02", "2024-01-02"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("~", None),
        ("null", None),
        ("", None),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("'1'", "1"),
        ("[1, a, 2.0]", [1, "a", 2.0]),
        ("{a: 1}", {"a": 1}),
        ("openai/gpt-5", "openai/gpt-5"),
        ("http://h:1/v1", "http://h:1/v1"),
    ],
)
def test_a_word_means_what_it_looks_like(text: str, value: Any) -> None:
    parsed = yaml_text.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_not_a_number_is_a_number() -> None:
    assert math.isnan(yaml_text.parse(".nan"))


@given(data=st.data())
def test_what_is_written_is_read_back(data: st.DataObject, any_json: Any) -> None:
    value = data.draw(any_json)
    assert yaml_text.parse(yaml_text.dump(value)) == value


@given(st.sampled_from(["1e5", "1e-3", "no", "true", "~", "", "1:30", "<<", "=", "0x1", ".inf", "- a", "#", "a: b"]))
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    assert yaml_text.parse(yaml_text.dump({"a": text})) == {"a": text}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "line 3.*'a' stands twice"),
        ("a: [1", "line 1"),
        ("a: 1\n b: 2", "line 2"),
        ("!!python/object:os.system x", "python/object"),
        ("--- 1\n--- 2", "document"),
        ("\x00", "special characters|not allowed|unacceptable"),
    ],
)
def test_a_fault_names_its_place(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        yaml_text.parse(text)
