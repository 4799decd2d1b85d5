from __future__ import annotations

import random

import pytest

from rllm.errors import ConfigError, DataError
from rllm_bench.procedural import Space, check_options, choose, fault_unless_between, split_of


def numbers(size: int, *, listed: bool) -> Space[int]:
    return Space(
        name="numbers",
        key=str,
        draw=lambda rng: rng.randrange(size) if rng.random() < 0.9 else None,
        every=(lambda: list(range(size))) if listed else None,
    )


def test_the_split_of_a_key_never_changes() -> None:
    assert [split_of(f"key {index}") for index in range(12)] == [
        "train",
        "train",
        "train",
        "train",
        "test",
        "train",
        "train",
        "train",
        "train",
        "train",
        "train",
        "train",
    ]
    assert 0.18 < sum(split_of(str(index)) == "test" for index in range(20_000)) / 20_000 < 0.22


@pytest.mark.parametrize("listed", [True, False])
def test_a_choice_depends_on_split_and_seed_and_a_smaller_limit_is_a_prefix(listed: bool) -> None:
    space = numbers(1000, listed=listed)
    chosen = choose(space, "test", limit=50, seed=3)
    assert chosen == choose(space, "test", limit=50, seed=3)
    assert chosen[:20] == choose(space, "test", limit=20, seed=3)
    assert chosen != choose(space, "test", limit=50, seed=4)
    assert len(set(chosen)) == 50
    train = choose(space, "train", limit=500, seed=3)
    assert not set(chosen) & set(train)


@pytest.mark.parametrize("listed", [True, False])
def test_without_a_limit_there_are_as_many_as_sensible_or_as_exist(listed: bool) -> None:
    assert len(choose(numbers(9000, listed=listed), "train", limit=None, seed=0)) == 1000
    assert len(choose(numbers(9000, listed=listed), "test", limit=None, seed=0)) == 200
    few = choose(numbers(50, listed=listed), "train", limit=None, seed=0)
    assert sorted(few) == [number for number in range(50) if split_of(str(number)) == "train"]


@pytest.mark.parametrize("listed", [True, False])
def test_a_limit_above_what_exists_gives_all_there_is(listed: bool) -> None:
    exist = sum(split_of(str(number)) == "train" for number in range(50))
    for limit in (exist, exist + 1, 10 * exist):
        assert len(set(choose(numbers(50, listed=listed), "train", limit=limit, seed=0))) == exist


def test_a_split_that_does_not_exist_or_is_empty_and_a_limit_of_nothing_are_refused() -> None:
    with pytest.raises(DataError, match="no split 'dev'; it has 'train' and 'test'"):
        choose(numbers(50, listed=True), "dev", limit=None, seed=0)
    with pytest.raises(DataError, match="no problem in split"):
        choose(numbers(0, listed=True), "train", limit=None, seed=0)
    for limit in (0, -3):
        with pytest.raises(DataError, match=f"limit={limit}"):
            choose(numbers(50, listed=True), "train", limit=limit, seed=0)


def test_drawing_does_not_touch_the_global_random_state() -> None:
    random.seed(1)
    before = random.getstate()
    choose(numbers(50, listed=False), "train", limit=5, seed=0)
    assert random.getstate() == before


def test_every_faulty_option_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        check_options(
            "toy",
            fault_unless_between("a", 0, 1, 3),
            fault_unless_between("b", True, 0, 3),
            fault_unless_between("c", 2, 1, 3),
        )
    assert caught.value.faults == (
        "toy: a=0 must be a whole number from 1 to 3",
        "toy: b=True must be a whole number from 0 to 3",
    )
    check_options("toy", None, None)
