"""The order in which tasks are trained on: a fresh shuffle each epoch, and a cursor that survives a restart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rllm.errors import DataError
from rllm.ids import derive_seed
from rllm.types import Task

__all__ = ["Cursor", "TaskStream"]


@dataclass(frozen=True, slots=True)
class Cursor:
    """How many tasks of which epoch have been handed out."""

    epoch: int = 0
    index: int = 0


class TaskStream:
    """Batches of tasks, without end. Epoch e is a shuffle that depends on (seed, e) alone."""

    def __init__(self, tasks: Sequence[Task], *, seed: int, cursor: Cursor | None = None) -> None:
        if not tasks:
            raise DataError("there are no tasks to train on")
        self._tasks = list(tasks)
        self._seed = seed
        self.cursor = cursor or Cursor()
        self._order = self._shuffled(self.cursor.epoch)

    def _shuffled(self, epoch: int) -> list[int]:
        order = list(range(len(self._tasks)))
        random.Random(derive_seed(self._seed, "epoch", epoch)).shuffle(order)
        return order

    def take(self, count: int) -> list[tuple[int, Task]]:
        """The next `count` tasks with the epoch each belongs to; an epoch's end is crossed without a gap."""
        batch: list[tuple[int, Task]] = []
        epoch, index = self.cursor.epoch, self.cursor.index
        while len(batch) < count:
            if index == len(self._order):
                epoch, index = epoch + 1, 0
                self._order = self._shuffled(epoch)
            batch.append((epoch, self._tasks[self._order[index]]))
            index += 1
        self.cursor = Cursor(epoch, index)
        return batch
