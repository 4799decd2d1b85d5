"""Tasks from rows: what a user hands over as a data set in memory."""

from __future__ import annotations

from collections.abc import Iterable

from rllm.errors import DataError, boundary
from rllm.types import Task

__all__ = ["check_ids", "tasks_from"]


def tasks_from(rows: object, *, what: str) -> list[Task]:
    """Tasks from what a user hands over: Tasks, or mappings with `question`, `instruction` or `prompt`.

    A mapping becomes the task's metadata, whole; its id is the row's `id`, else its position. Raises DataError for an
    empty data set, a row without instruction, or an id that occurs twice.
    """
    if not hasattr(rows, "__iter__") or isinstance(rows, str | bytes):
        raise DataError(f"{what} must be a sequence of tasks or rows, got {type(rows).__name__}")
    tasks = [_task(row, index, what) for index, row in enumerate(rows)]
    if not tasks:
        raise DataError(f"{what} is empty")
    check_ids(tasks, what=what)
    return tasks


def check_ids(tasks: Iterable[Task], *, what: str) -> None:
    """Raise DataError when two tasks have one id: their rollouts could not be told apart."""
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise DataError(f"{what}: the task id {task.id!r} occurs twice")
        seen.add(task.id)


def _task(row: object, index: int, what: str) -> Task:
    if isinstance(row, Task):
        return row
    try:
        data = dict(row)  # type: ignore[call-overload]  # any mapping; anything else raises TypeError or ValueError
    except (TypeError, ValueError):
        raise DataError(f"{what}: row {index} is a {type(row).__name__}, expected a Task or a mapping") from None
    for key in ("instruction", "question", "prompt"):
        if isinstance(data.get(key), str | list):
            with boundary(DataError, f"{what}: row {index}"):
                return Task(id=str(data.get("id", index)), instruction=data[key], metadata=data)
    raise DataError(
        f"{what}: row {index} has none of 'instruction', 'question' and 'prompt'; its keys are {sorted(map(str, data))}"
    )
