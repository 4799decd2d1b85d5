"""`RunStore`: one run's folder, for the process that writes it and for those that read it."""

from __future__ import annotations

import json
import math
import re
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rllm.errors import StoreError
from rllm.ids import RolloutKey
from rllm.store.codec import COLUMNS, decode_episode, encode_episode
from rllm.store.database import connect_writer, from_sql_text, reader
from rllm.store.lock import RunLock
from rllm.store.manifest import SCHEMA_VERSION, installed_versions, read_manifest, write_atomically, write_manifest
from rllm.store.metrics_file import FILE as METRICS_FILE
from rllm.store.metrics_file import mend, metrics_line
from rllm.store.writer import Job, Writer
from rllm.types import Episode, EpisodeStatus

__all__ = ["RunStore"]

_INSERT_EPISODE = f"INSERT OR REPLACE INTO episodes ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
_INSERT_METRIC = "INSERT OR REPLACE INTO metrics (kind, step, name, value) VALUES (?, ?, ?, ?)"
_INSERT_EVENT = "INSERT INTO events (at, kind, data) VALUES (?, ?, ?)"
_UNFINISHED = (EpisodeStatus.INFRA_ERROR, EpisodeStatus.CANCELLED)
"""Attempts that a resumed run makes again."""


class RunStore:
    """One run on disk. `create` and `open` make it; use it in a `with`.

    What is added is written by a thread, in batches, as it happens: the caller pays for turning it into bytes and
    waits for the disk only when 256 MiB have piled up. `flush` returns once all of it is committed, and a commit
    survives SIGKILL. Every method that writes raises `StoreError` once the disk has failed; everything committed
    before stays readable.
    """

    def __init__(self, path: Path, manifest: dict[str, Any], writer: Writer | None, lock: RunLock | None) -> None:
        self.path = path
        self._manifest = manifest
        self._writer = writer
        self._lock = lock

    @classmethod
    def create(cls, root: Path, *, kind: str, name: str, manifest: Mapping[str, Any]) -> Self:
        """A new run in its own folder under `root`, open for writing.

        `manifest` is plain JSON data about the run (config, plugins, seeds …); its keys stand beside those that the
        store fills in: schema, id, kind, name, created_at, status and versions.
        """
        created = datetime.now(UTC)
        own = {"schema": SCHEMA_VERSION, "kind": kind, "name": name, "status": "created"}
        own["created_at"] = created.isoformat(timespec="seconds")
        if clash := sorted({*own, "id", "versions"} & set(manifest)):
            raise StoreError(f"the manifest of a run must not set {clash[0]!r}, which the store fills in")
        run_id, path = _new_folder(Path(root), created, name)
        try:
            full = {"id": run_id, **own, **manifest, "versions": installed_versions()}
            write_manifest(path, full)
            return cls._open_for_writing(path, full)
        except StoreError:
            shutil.rmtree(path, ignore_errors=True)
            raise

    @classmethod
    def open(cls, path: Path, *, write: bool = False) -> Self:
        """An existing run. Raises `StoreError` when it is not one, or when `write` and another process writes it."""
        path = Path(path)
        manifest = read_manifest(path)
        return cls._open_for_writing(path, manifest) if write else cls(path, manifest, None, None)

    @classmethod
    def _open_for_writing(cls, path: Path, manifest: dict[str, Any]) -> Self:
        lock = RunLock(path)
        opened = False
        try:
            mend(path / METRICS_FILE)
            writer = Writer(lambda: connect_writer(path), name=manifest["id"], text_file=path / METRICS_FILE)
            opened = True
        except StoreError:
            raise
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot open run {manifest['id']!r} for writing: {error}") from None
        finally:
            if not opened:
                lock.release()
        return cls(path, manifest, writer, lock)

    @property
    def id(self) -> str:
        """Unique under the root; the folder's name."""
        return str(self._manifest["id"])

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What `run.json` held when this store was opened, with this process's changes."""
        return self._manifest

    def add_episode(self, episode: Episode, *, step: int | None, split: str) -> None:
        """Store one attempt. An earlier one with the same split, step, task and attempt number is replaced."""
        self.add_episodes((episode,), step=step, split=split)

    def add_episodes(self, episodes: Iterable[Episode], *, step: int | None, split: str) -> None:
        """Store several attempts, all or none of them. Later changes to the objects do not reach the disk."""
        rows = [encode_episode(episode, step=step, split=split) for episode in episodes]
        if rows:
            self._put(Job(_INSERT_EPISODE, rows, sum(row.size for row in rows)))

    def add_metrics(self, step: int, metrics: Mapping[str, float], *, kind: str = "train") -> None:
        """Store numbers of one step; a number of the same kind, step and name is replaced."""
        rows = [(kind, step, name, float(value)) for name, value in metrics.items()]
        if rows:
            text = metrics_line(kind, step, {name: value for _, _, name, value in rows})
            self._put(Job(_INSERT_METRIC, rows, 100 * len(rows), text))

    def add_event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Store something that happened; `data` is plain JSON data."""
        try:
            text = json.dumps(data)
        except (TypeError, ValueError) as error:
            raise StoreError(f"the data of event {kind!r} must be plain JSON: {error}") from None
        self._put(Job(_INSERT_EVENT, [(time.time(), kind, text)], 100 + len(text)))

    def flush(self) -> None:
        """Return once everything added so far is committed."""
        if self._writer is not None:
            self._writer.flush()

    def episodes(self, *, split: str | None = None, step: int | None = None) -> Iterator[Episode]:
        """Stored attempts in the order in which they were added, exactly as they were, tokens included."""
        self._settle()
        wanted = "(:split IS NULL OR split = :split) AND (:step IS NULL OR step = :step)"
        query = f"SELECT data, tokens FROM episodes WHERE {wanted}"
        with reader(self.path) as connection:
            for data, tokens in connection.execute(f"{query} ORDER BY id", {"split": split, "step": step}):
                yield decode_episode(data, tokens)

    def count_episodes(self) -> dict[str, dict[str, int]]:
        """Split -> status -> number of stored attempts."""
        self._settle()
        counts: dict[str, dict[str, int]] = {}
        with reader(self.path) as connection:
            query = "SELECT split, status, count(*) FROM episodes GROUP BY split, status ORDER BY split, status"
            for split, status, count in connection.execute(query):
                counts.setdefault(split, {})[status] = count
        return counts

    def finished(self, split: str) -> set[RolloutKey]:
        """Attempts that need not be made again. Those that failed for reasons outside the agent are left out."""
        self._settle()
        with reader(self.path) as connection:
            query = "SELECT task_id, attempt FROM episodes WHERE split = ? AND status NOT IN (?, ?)"
            rows = connection.execute(query, (split, *(status.value for status in _UNFINISHED)))
            return {RolloutKey(from_sql_text(task_id), attempt) for task_id, attempt in rows}

    def metrics(self, kind: str = "train") -> list[dict[str, float]]:
        """One mapping a step, in order: `step`, then each number by name."""
        self._settle()
        with reader(self.path) as connection:
            return _metrics(connection, kind)

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """What happened, in order: `at` (Unix seconds), `kind` and `data`."""
        self._settle()
        with reader(self.path) as connection:
            query = "SELECT at, kind, data FROM events WHERE :kind IS NULL OR kind = :kind ORDER BY id"
            rows = connection.execute(query, {"kind": kind})
            return [{"at": at, "kind": name, "data": json.loads(data)} for at, name, data in rows]

    def rewind(self, step: int) -> None:
        """Forget the episodes and metrics of every step after `step`, as when a run resumes from its checkpoint."""
        self._put(Job("DELETE FROM episodes WHERE step > ?", [(step,)], 0))
        self._put(Job("DELETE FROM metrics WHERE step > ?", [(step,)], 0))
        self.flush()
        with reader(self.path) as connection:
            kinds = [kind for (kind,) in connection.execute("SELECT DISTINCT kind FROM metrics ORDER BY kind")]
            lines = [(row.pop("step"), kind, row) for kind in kinds for row in _metrics(connection, kind)]
        lines.sort(key=lambda line: line[:2])
        write_atomically(self.path / METRICS_FILE, "".join(metrics_line(kind, int(at), row) for at, kind, row in lines))

    def set_status(self, status: str) -> None:
        """Record `running`, `finished`, `failed` or `interrupted`, once everything before it is committed."""
        if self._writer is None:
            raise StoreError(f"run {self.id!r} is open for reading only")
        if not self._writer.failed or status == "finished":
            self._writer.flush()
        self._manifest = {
            **self._manifest,
            "status": status,
            "updated_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_manifest(self.path, self._manifest)

    def close(self) -> None:
        """Write what is left and let others write; idempotent. Raises a failure that nobody has been told of."""
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _put(self, job: Job) -> None:
        if self._writer is None:
            raise StoreError(f"run {self.id!r} is open for reading only")
        self._writer.put(job)

    def _settle(self) -> None:
        """Let this process see what it has added; after a failure, what was committed is still there to read."""
        if self._writer is not None and not self._writer.failed:
            self._writer.flush()


def _new_folder(root: Path, created: datetime, name: str) -> tuple[str, Path]:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"
    while True:
        run_id = f"{created:%Y%m%d-%H%M%S}-{slug}-{secrets.token_hex(2)}"
        path = root / run_id
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if path.is_dir():
                continue
            raise StoreError(f"cannot make {str(path)!r}: a file is in the way") from None
        except OSError as error:
            raise StoreError(f"cannot make the run folder {str(path)!r}: {error.strerror or error}") from None
        return run_id, path


def _metrics(connection: sqlite3.Connection, kind: str) -> list[dict[str, float]]:
    by_step: dict[int, dict[str, float]] = {}
    query = "SELECT step, name, value FROM metrics WHERE kind = ? ORDER BY step, name"
    for step, name, value in connection.execute(query, (kind,)):
        row = by_step.setdefault(step, {"step": step})
        row[name] = math.nan if value is None else value
    return list(by_step.values())
