"""`run.json`: what a run is. Read whole, replaced in one step, so that nobody ever sees half of it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllm.errors import StoreError

__all__ = ["SCHEMA_VERSION", "installed_versions", "read_manifest", "write_atomically", "write_manifest"]

SCHEMA_VERSION = 1
"""Of the folder's layout, the manifest and the database."""
FILE = "run.json"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of the run in `folder`. Raises `StoreError` when there is none or it is of another version."""
    path = folder / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"{str(folder)!r} is not a run: it has no {FILE}") from None
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read {str(path)!r}: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA_VERSION:
        found = data.get("schema") if isinstance(data, dict) else None
        raise StoreError(f"{str(path)!r} has schema version {found!r}, this rllm reads {SCHEMA_VERSION}")
    return data


def write_manifest(folder: Path, data: Mapping[str, Any]) -> None:
    """Replace the manifest. Raises `StoreError` when it cannot; the old one is then still there."""
    try:
        text = json.dumps(data, indent=2, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise StoreError(f"the manifest of a run must be plain JSON data: {error}") from None
    write_atomically(folder / FILE, text + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step that survives a power cut. Raises `StoreError`; the old file is then untouched."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogatepass") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), 0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StoreError(f"cannot write {str(path)!r}: {error.strerror or error}") from None


def installed_versions() -> dict[str, Any]:
    """The versions of Python and of every installed distribution."""
    packages: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            packages.setdefault(name, distribution.version)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(sorted(packages.items())),
    }
