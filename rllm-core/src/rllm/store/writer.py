"""The thread that writes a run's database, in batches, so that nobody waits for the disk."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rllm.errors import StoreError

__all__ = ["Job", "Writer"]

logger = logging.getLogger(__name__)

_QUEUE_LIMIT_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Job:
    """Rows for one statement, and text for the metrics file once they are committed."""

    statement: str
    rows: Sequence[Sequence[Any]]
    size: int
    """Bytes, roughly."""
    text: str = ""


class Writer:
    """Commits jobs in order; every batch is whatever has gathered while the one before was being written.

    `put` returns at once unless more than `limit_bytes` wait, which means that the disk cannot keep up. After a
    failure nothing more is written, and every later call raises it; what was committed stays readable.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        name: str,
        text_file: Path,
        limit_bytes: int = _QUEUE_LIMIT_BYTES,
    ) -> None:
        self._connection = connect()
        self._name = name
        self._text_file = text_file
        self._limit = limit_bytes
        self._changed = threading.Condition()
        self._jobs: list[Job] = []
        self._bytes = 0
        self._accepted = 0
        self._committed = 0
        self._closing = False
        self._failure: str | None = None
        self._told = False
        self._thread = threading.Thread(target=self._run, name=f"rllm-store-{name}", daemon=True)
        self._thread.start()

    def put(self, job: Job) -> None:
        """Hand over a job. Raises `StoreError` after a failure or after `close`."""
        with self._changed:
            if self._closing:
                raise StoreError(f"run {self._name!r} is closed")
            self._changed.wait_for(lambda: self._bytes <= self._limit or self._failure is not None)
            self._raise_failure()
            self._jobs.append(job)
            self._bytes += job.size
            self._accepted += 1
            self._changed.notify_all()

    def flush(self) -> None:
        """Return once everything handed over is committed. Raises `StoreError` if it cannot be."""
        with self._changed:
            target = self._accepted
            self._changed.wait_for(lambda: self._committed >= target or self._failure is not None)
            if self._committed < target:
                self._raise_failure()

    @property
    def failed(self) -> bool:
        """Whether writing has stopped for good."""
        return self._failure is not None

    def close(self) -> None:
        """Write what is left and stop; idempotent. Raises a failure only if nobody has been told of it yet."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        if self._failure is not None and not self._told:
            with self._changed:
                self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._told = True
            raise StoreError(self._failure)

    def _run(self) -> None:
        failure = f"the writer of run {self._name!r} stopped unexpectedly"
        try:
            while jobs := self._take():
                try:
                    self._commit(jobs)
                except (sqlite3.Error, OSError) as error:
                    failure = f"cannot write run {self._name!r}: {error}; what was stored before is intact"
                    return
                with self._changed:
                    self._committed += len(jobs)
                    self._bytes -= sum(job.size for job in jobs)
                    self._changed.notify_all()
            failure = ""
        finally:
            with self._changed:
                self._failure = failure or None
                self._jobs.clear()
                self._changed.notify_all()
            self._disconnect()

    def _take(self) -> list[Job]:
        """Everything that waits; empty once the writer is closing and nothing does."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closing)
            jobs, self._jobs = self._jobs, []
            return jobs

    def _commit(self, jobs: Sequence[Job]) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            for job in jobs:
                connection.executemany(job.statement, job.rows)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if text := "".join(job.text for job in jobs):
            with self._text_file.open("a", encoding="utf-8") as file:
                file.write(text)

    def _disconnect(self) -> None:
        try:
            self._connection.close()
        except sqlite3.Error as error:
            logger.warning("run %r: closing its database failed: %s", self._name, error)
