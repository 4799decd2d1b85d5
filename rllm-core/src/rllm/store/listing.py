"""Finding runs: all of them under a root, or the one that a person means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rllm.errors import StoreError, UnknownName
from rllm.plugins.suggest import did_you_mean
from rllm.store.lock import is_locked
from rllm.store.manifest import FILE, read_manifest

__all__ = ["RunSummary", "find_run", "list_runs"]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in a list."""

    id: str
    kind: str
    name: str
    status: str
    """As recorded; `killed` when it says that it is running and no process writes it; `unreadable`."""
    created_at: str
    """ISO 8601, UTC."""
    path: Path


def list_runs(root: Path) -> list[RunSummary]:
    """The runs under `root`, newest first; none when it does not exist."""
    folders = [path for path in Path(root).iterdir() if (path / FILE).is_file()] if Path(root).is_dir() else []
    return sorted(map(_summary, folders), key=lambda run: (run.created_at, run.id), reverse=True)


def find_run(root: Path, reference: str | Path) -> Path:
    """The folder of the run that is meant by its path, its id, the start of its id, or its name.

    Raises `UnknownName` when no run, or more than one, is meant.
    """
    path = Path(reference)
    if (path / FILE).is_file():
        return path
    text = str(reference)
    runs = list_runs(root)
    for matching in (
        [run for run in runs if run.id == text],
        [run for run in runs if run.name == text],
        [run for run in runs if text and run.id.startswith(text)],
    ):
        if len(matching) == 1:
            return matching[0].path
        if matching:
            raise UnknownName(
                f"{len(matching)} runs are called {text!r}; say which: {', '.join(run.id for run in matching[:5])}"
            )
    raise UnknownName(f"no run is called {text!r} under {str(root)!r}{_hint(text, runs)}")


def _hint(text: str, runs: Iterable[RunSummary]) -> str:
    known = {name for run in runs for name in (run.id, run.name)}
    return did_you_mean(text, known) or "; `rllm runs list` shows them all"


def _summary(folder: Path) -> RunSummary:
    try:
        manifest = read_manifest(folder)
    except StoreError:
        return RunSummary(folder.name, "", "", "unreadable", "", folder)
    status = str(manifest.get("status", ""))
    if status in ("created", "running") and not is_locked(folder):
        status = "killed"
    return RunSummary(
        id=str(manifest.get("id", folder.name)),
        kind=str(manifest.get("kind", "")),
        name=str(manifest.get("name", "")),
        status=status,
        created_at=str(manifest.get("created_at", "")),
        path=folder,
    )
