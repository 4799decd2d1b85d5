import pytest

from rllm.errors import DataError
from rllm.tasks.rows import tasks_from
from rllm.trainer.data import TaskStream
from rllm.types import Task

TASKS = [Task(id=f"t:{i}", instruction=str(i)) for i in range(5)]


def ids(batch: list[tuple[int, Task]]) -> list[str]:
    return [task.id for _, task in batch]


def test_an_epoch_holds_every_task_once_and_the_next_is_shuffled_anew() -> None:
    stream = TaskStream(TASKS, seed=1)
    first, second = stream.take(5), stream.take(5)
    assert sorted(ids(first)) == sorted(ids(second)) == [t.id for t in TASKS]
    assert ids(first) != ids(second)
    assert {epoch for epoch, _ in first} == {0}
    assert {epoch for epoch, _ in second} == {1}


def test_resuming_from_the_cursor_gives_what_would_have_followed() -> None:
    whole = TaskStream(TASKS, seed=7)
    straight = [ids(whole.take(3)) for _ in range(10)]
    for stop in range(10):
        stream = TaskStream(TASKS, seed=7)
        for _ in range(stop):
            stream.take(3)
        resumed = TaskStream(TASKS, seed=7, cursor=stream.cursor)
        assert [ids(resumed.take(3)) for _ in range(10 - stop)] == straight[stop:]


def test_a_batch_larger_than_the_data_set_crosses_epochs() -> None:
    batch = TaskStream(TASKS, seed=0).take(12)
    assert [epoch for epoch, _ in batch] == [0] * 5 + [1] * 5 + [2] * 2
    assert len({(epoch, task.id) for epoch, task in batch}) == 12


def test_an_empty_data_set_is_refused() -> None:
    with pytest.raises(DataError, match="no tasks"):
        TaskStream([], seed=0)
    with pytest.raises(DataError, match="train_dataset is empty"):
        tasks_from([], what="train_dataset")


def test_rows_become_tasks_with_the_whole_row_as_metadata() -> None:
    blocks = [{"type": "text", "text": "look"}]
    rows = [{"question": "1+1?", "answer": "2", "id": "x:1"}, {"instruction": blocks}, TASKS[0]]
    first, second, third = tasks_from(rows, what="rows")
    assert (first.id, first.instruction, first.metadata["answer"]) == ("x:1", "1+1?", "2")
    assert (second.id, second.instruction) == ("1", blocks)
    assert third is TASKS[0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"q": "x"}], "none of 'instruction', 'question' and 'prompt'"),
        ([5], "row 0 is a int"),
        ([TASKS[0], TASKS[0]], "occurs twice"),
        ([{"prompt": ["not a block"]}], "row 0: ValidationError"),
        ("text", "must be a sequence"),
        (5, "must be a sequence"),
    ],
)
def test_bad_rows_are_named(rows: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        tasks_from(rows, what="rows")
