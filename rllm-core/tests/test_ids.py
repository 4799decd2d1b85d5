"""Identifiers are unique and opaque; seeds depend on every part and on nothing else."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from rllm.ids import RolloutKey, derive_seed, new_id

part = st.one_of(st.text(max_size=6), st.integers(-5, 5))


def test_new_ids_carry_their_prefix_and_never_repeat() -> None:
    made = {new_id("call") for _ in range(1000)}
    assert len(made) == 1000
    assert all(each.startswith("call_") for each in made)


@given(st.lists(part, max_size=4), st.lists(part, max_size=4))
def test_different_parts_give_different_seeds(first: list[str | int], second: list[str | int]) -> None:
    same = [(type(a), a) for a in first] == [(type(b), b) for b in second]
    assert (derive_seed(*first) == derive_seed(*second)) is same


@given(st.lists(part, max_size=4))
def test_a_seed_fits_in_63_bits(parts: list[str | int]) -> None:
    assert 0 <= derive_seed(*parts) < 2**63


def test_seeds_are_the_same_in_every_process() -> None:
    code = "from rllm.ids import derive_seed; print(derive_seed(7, 'train', 'math:12', 3))"
    command = [sys.executable, "-c", code]
    runs = {
        subprocess.run(command, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    }
    assert runs == {f"{derive_seed(7, 'train', 'math:12', 3)}\n"}


def test_half_a_surrogate_pair_is_a_part_like_any_other() -> None:
    assert derive_seed("\ud83d") != derive_seed("?")


def test_rollout_keys_with_colons_are_distinct() -> None:
    assert len({RolloutKey("a:1", 2), RolloutKey("a", 12), RolloutKey("a:12", 0)}) == 3
