"""Importing one plugin through stevedore, so that one that fails fails alone.

stevedore's own scan is bypassed: its cache on disk can be two minutes stale and forgets which distribution an
entry point came from.
"""

from __future__ import annotations

import importlib.metadata
import sys
from contextlib import redirect_stdout
from time import perf_counter
from typing import Any

from stevedore import ExtensionManager

from rllm.errors import PluginError, boundary
from rllm.plugins.records import Announcement

__all__ = ["import_plugin"]


class _One(ExtensionManager):  # type: ignore[misc]  # stevedore has no types
    """An extension manager that knows exactly one entry point, and hands its failure to whoever asked."""

    def __init__(self, entry: importlib.metadata.EntryPoint) -> None:
        self._entry = entry
        self.failure: BaseException | None = None
        super().__init__(entry.group, on_load_failure_callback=self._failed)

    def list_entry_points(self) -> list[importlib.metadata.EntryPoint]:
        return [self._entry]

    def _failed(self, manager: object, entry: object, error: BaseException) -> None:
        self.failure = error


def import_plugin(plugin: Announcement) -> tuple[Any, float]:
    """What the entry point names, and the seconds that its import took.

    Raises `PluginError`, caused by whatever the import raised, `SystemExit` included. What the import prints
    goes to stderr: stdout belongs to the command.
    """
    entry = importlib.metadata.EntryPoint(plugin.name, plugin.value, plugin.group)
    started = perf_counter()
    with boundary(PluginError, f"import of {plugin.value!r}"), redirect_stdout(sys.stderr):
        manager = _One(entry)
        if manager.failure is not None:
            raise manager.failure
        (extension,) = manager.extensions
    return extension.plugin, perf_counter() - started
