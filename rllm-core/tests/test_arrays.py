"""Token data: one dtype each, exact in JSON, and never silently something else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from rllm import arrays
from rllm.arrays import Floats, Ids, Mask


class Holder(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    ids: Ids
    floats: Floats
    mask: Mask


@given(st.lists(st.integers(-(2**31), 2**31 - 1)), st.lists(st.floats(width=32)), st.lists(st.integers(0, 1)))
def test_every_value_survives_json_bit_for_bit(ids: list[int], floats: list[float], mask: list[int]) -> None:
    holder = Holder(ids=ids, floats=floats, mask=mask)  # type: ignore[arg-type]  # lists are accepted
    restored = Holder.model_validate_json(holder.model_dump_json())
    assert restored.ids.tobytes() == holder.ids.tobytes()
    assert restored.floats.tobytes() == holder.floats.tobytes()
    assert restored.mask.tobytes() == holder.mask.tobytes()


def test_json_is_base64_of_little_endian_bytes() -> None:
    text = Holder(ids=[1, 258], floats=[1.0], mask=[1, 0]).model_dump(mode="json")  # type: ignore[arg-type]  # lists
    assert text == {"ids": "AQAAAAIBAAA=", "floats": "AACAPw==", "mask": "AQA="}


def test_a_big_endian_array_keeps_its_values() -> None:
    assert arrays.ids(np.array([1, 2, 3], ">i8")).tolist() == [1, 2, 3]


def test_a_view_is_copied_so_that_it_keeps_no_larger_array_alive() -> None:
    base = np.arange(1000, dtype=np.int32)
    assert arrays.ids(base[::2]).base is None
    assert arrays.ids(base[:3]).base is None


def test_nothing_is_an_empty_array_of_the_right_type() -> None:
    assert arrays.ids().dtype == np.int32
    assert arrays.ids([]).size == 0
    assert arrays.floats(()).dtype == np.float32
    assert arrays.mask().dtype == np.uint8


@pytest.mark.parametrize("bad", [[0.5], [1.0], ["1"], [None], [[1, 2]], [2**31], [2**70], 3, None, {1: 2}, {1}, b"abc"])
def test_what_is_not_a_sequence_of_ids_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|fit"):
        arrays.ids(bad)


@pytest.mark.parametrize("bad", [["a"], [1e39], [[1.0]], [1j]])
def test_what_is_not_a_sequence_of_floats_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|fit"):
        arrays.floats(bad)


def test_a_flag_is_not_an_id_but_may_be_a_mask() -> None:
    assert arrays.mask([True, False]).tolist() == [1, 0]
    with pytest.raises(ValueError, match="expected integers, got bool"):
        arrays.ids([True])


@pytest.mark.parametrize(("text", "message"), [("AAA=", "not whole"), ("!!", "base64"), ("é", "base64")])
def test_damaged_base64_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arrays.ids(text)


def test_infinities_and_nan_are_floats() -> None:
    values = arrays.floats([math.inf, -math.inf, math.nan])
    assert np.isposinf(values[0])
    assert np.isneginf(values[1])
    assert np.isnan(values[2])
