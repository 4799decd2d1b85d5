"""`run.db`: its tables, and connections to it. Errors of SQLite leave this package as `StoreError`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rllm.errors import StoreError
from rllm.store.manifest import SCHEMA_VERSION

__all__ = ["NO_STEP", "connect_writer", "from_sql_text", "reader", "to_sql_text"]

FILE = "run.db"
NO_STEP = -1
"""Stored where an episode belongs to no learner step."""

_TABLES = """
CREATE TABLE episodes (
    id INTEGER PRIMARY KEY,
    split TEXT NOT NULL,
    step INTEGER NOT NULL,
    task_id ANY NOT NULL,
    attempt INTEGER NOT NULL,
    episode_id ANY NOT NULL,
    status TEXT NOT NULL,
    termination TEXT NOT NULL,
    reward REAL,
    is_correct INTEGER,
    stored_at REAL NOT NULL,
    data TEXT NOT NULL,
    tokens BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX episode_key ON episodes (split, step, task_id, attempt);
CREATE TABLE metrics (
    kind TEXT NOT NULL,
    step INTEGER NOT NULL,
    name TEXT NOT NULL,
    value REAL,
    PRIMARY KEY (kind, step, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
"""


def connect_writer(folder: Path) -> sqlite3.Connection:
    """The one connection that writes; makes the tables in a new database.

    A commit is in the operating system's hands before it returns, so it survives the process's death. It may be
    used from one thread at a time.
    """
    connection = sqlite3.connect(folder / FILE, isolation_level=None, check_same_thread=False, timeout=30)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        else:
            _check_version(folder, version)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def reader(folder: Path) -> Iterator[sqlite3.Connection]:
    """A connection that only reads; sees what has been committed, also while another process writes."""
    try:
        uri = f"{(folder / FILE).absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30)) as connection:
            _check_version(folder, connection.execute("PRAGMA user_version").fetchone()[0])
            yield connection
    except sqlite3.Error as error:
        raise StoreError(f"cannot read {str(folder / FILE)!r}: {error}") from None


def _check_version(folder: Path, version: int) -> None:
    if version != SCHEMA_VERSION:
        raise StoreError(f"{str(folder / FILE)!r} has schema version {version}, this rllm reads {SCHEMA_VERSION}")


def to_sql_text(text: str) -> str | bytes:
    """Text as a value of SQLite. Half a surrogate pair, which UTF-8 cannot hold, makes it bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def from_sql_text(value: str | bytes) -> str:
    """The text that `to_sql_text` was given."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")
