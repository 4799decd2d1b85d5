"""The writing thread: order, backpressure, and what happens when the disk gives up."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from rllm.errors import StoreError
from rllm.store.writer import Job, Writer

INSERT = "INSERT INTO numbers VALUES (?)"


class SlowDisk:
    """A database whose commits wait until they are allowed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.allowed = threading.Event()

    def connect(self) -> Any:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (n INTEGER)")
        connection.create_function("wait", 0, self._wait)
        return connection

    def _wait(self) -> int:
        assert self.allowed.wait(10)
        return 1

    def numbers(self) -> list[int]:
        connection = sqlite3.connect(self.path)
        try:
            return [row[0] for row in connection.execute("SELECT n FROM numbers ORDER BY rowid")]
        finally:
            connection.close()


def open_writer(disk: SlowDisk, tmp_path: Path, limit_bytes: int = 1000) -> Writer:
    return Writer(disk.connect, name="r", text_file=tmp_path / "m.jsonl", limit_bytes=limit_bytes)


def blocking(number: int, size: int) -> Job:
    return Job("INSERT INTO numbers SELECT ? WHERE wait() = 1", [(number,)], size)


def test_jobs_are_committed_in_order(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path / "db")
    writer = open_writer(disk, tmp_path)
    for number in range(100):
        writer.put(Job(INSERT, [(number,)], 1, text=f"{number}\n"))
    writer.flush()
    assert disk.numbers() == list(range(100))
    writer.close()
    assert (tmp_path / "m.jsonl").read_text() == "".join(f"{number}\n" for number in range(100))


def test_a_caller_waits_only_when_too_much_has_piled_up(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path / "db")
    writer = open_writer(disk, tmp_path, limit_bytes=100)
    writer.put(blocking(0, 60))
    writer.put(Job(INSERT, [(1,)], 60))
    added = threading.Event()

    def add_third() -> None:
        writer.put(Job(INSERT, [(2,)], 60))
        added.set()

    thread = threading.Thread(target=add_third)
    thread.start()
    assert not added.wait(0.2)
    disk.allowed.set()
    assert added.wait(10)
    thread.join()
    writer.close()
    assert disk.numbers() == [0, 1, 2]


def test_a_failure_is_raised_by_the_next_calls_and_keeps_what_was_committed(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path / "db")
    writer = open_writer(disk, tmp_path)
    writer.put(Job(INSERT, [(1,)], 1))
    writer.flush()
    writer.put(Job("INSERT INTO nowhere VALUES (?)", [(2,)], 1))
    with pytest.raises(StoreError, match="cannot write run 'r': no such table.*intact"):
        writer.flush()
    assert writer.failed
    with pytest.raises(StoreError, match="cannot write run 'r'"):
        writer.put(Job(INSERT, [(3,)], 1))
    writer.close()
    assert disk.numbers() == [1]


def test_a_batch_with_a_failure_is_not_half_committed(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path / "db")
    writer = open_writer(disk, tmp_path)
    writer.put(blocking(1, 1))
    for number in (2, 3, 4):  # gather behind the first and are one batch
        writer.put(Job(INSERT, [(number,)], 1, text=f"{number}\n"))
    writer.put(Job("INSERT INTO nowhere VALUES (?)", [(5,)], 1))
    disk.allowed.set()
    with pytest.raises(StoreError):
        writer.flush()
    writer.close()
    assert disk.numbers() in ([], [1])
    assert not (tmp_path / "m.jsonl").exists()


def test_closing_raises_a_failure_that_nobody_was_told_of(tmp_path: Path) -> None:
    writer = open_writer(SlowDisk(tmp_path / "db"), tmp_path)
    writer.put(Job("INSERT INTO nowhere VALUES (?)", [(2,)], 1))
    with pytest.raises(StoreError, match="no such table"):
        writer.close()
    writer.close()


def test_a_caller_that_waits_for_room_is_told_of_a_failure(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path / "db")
    writer = open_writer(disk, tmp_path, limit_bytes=10)
    writer.put(Job("INSERT INTO numbers SELECT 1/0 FROM nowhere WHERE wait()", [()], 60))

    def add_until_told() -> None:
        for _ in range(3):
            writer.put(Job(INSERT, [(1,)], 60))

    with pytest.raises(StoreError, match="no such table"):
        add_until_told()
    writer.close()


def test_metrics_that_cannot_be_appended_are_a_failure_too(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path / "db")
    (tmp_path / "m.jsonl").mkdir()
    writer = open_writer(disk, tmp_path)
    writer.put(Job(INSERT, [(1,)], 1, text="line\n"))
    with pytest.raises(StoreError, match="Is a directory"):
        writer.flush()
    writer.close()
