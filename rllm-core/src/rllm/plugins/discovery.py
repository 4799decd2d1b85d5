"""Finding plugins: reads the entry points of every installed distribution and imports none of them.

The scan is our own (`importlib.metadata`, no cache on disk), because an entry point must keep its
distribution: failures, compatibility and run manifests are about distributions. Loading is
`rllm.plugins.kernel`'s.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from rllm.errors import PluginError, RllmError, boundary, one_line
from rllm.plugins.records import Announcement, Failure, Phase

__all__ = ["COMMANDS", "CORE", "LEGACY", "PLUGINS", "Selection", "announced", "core_version", "selection"]

PLUGINS = "rllm"
"""Group of plugin modules."""
COMMANDS = "rllm.commands"
"""Group of click commands, by name, so that `rllm --help` can list them without importing anything."""
LEGACY = {"rllm.agents": "harness", "rllm.evaluators": "grader"}
"""Groups in which existing packages publish objects, and the kind that each becomes."""
CORE = "rllm-core"
"""Our own distribution."""

_GROUPS = (PLUGINS, COMMANDS, *LEGACY)


@dataclass(frozen=True, slots=True)
class Selection:
    """What `RLLM_PLUGINS` allows: everything, or the named entry points and distributions."""

    names: frozenset[str] | None

    def allows(self, announcement: Announcement) -> bool:
        """Whether the plugin may be loaded. The core's own built-ins always may."""
        return (
            self.names is None or announcement.distribution == CORE or not self.names.isdisjoint(_names(announcement))
        )

    def absent(self, announcements: Iterable[Announcement]) -> list[str]:
        """Names that were asked for and that nothing installed answers to."""
        known = {name for each in announcements for name in _names(each)}
        return sorted((self.names or frozenset()) - known)


def selection() -> Selection:
    """`RLLM_PLUGINS` as it is now: unset or empty means all, `none` the core alone, else a comma list."""
    text = os.environ.get("RLLM_PLUGINS", "").strip()
    if not text:
        return Selection(None)
    names = {_canonical(part.strip()) for part in text.split(",")} - {"", "none"}
    return Selection(frozenset(names))


def core_version() -> str:
    """The running version of rllm-core. Raises `PluginError` when rllm is on the path but not installed."""
    try:
        return importlib.metadata.version(CORE)
    except importlib.metadata.PackageNotFoundError:
        raise PluginError(
            "rllm-core is importable but not installed, so its version is unknown: pip install -e ./rllm-core"
        ) from None


def announced(*groups: str) -> tuple[list[Announcement], list[tuple[str, Failure]]]:
    """Entry points in `groups` (all of ours without one), sorted; and what failed, by distribution.

    Of two copies of one distribution the first on `sys.path` counts, as it does for `import`.
    """
    wanted = groups or _GROUPS
    found: list[Announcement] = []
    failed: list[tuple[str, Failure]] = []
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions():
        name = str(getattr(distribution, "_path", "an installed distribution"))
        try:
            with boundary(PluginError, "its metadata cannot be read"):
                text = distribution.read_text("entry_points.txt") or ""
                if "[rllm" not in text:
                    continue
                metadata = distribution.metadata
                name = str(metadata["Name"] or name)
                if _canonical(name) in seen:
                    continue
                seen.add(_canonical(name))
                found += _entries(distribution, name, wanted)
        except RllmError as error:
            remedy = f"reinstall it: pip install --force-reinstall {name}"
            failed.append((name, Failure(Phase.DISCOVER, error.__cause__ or error, one_line(error), remedy)))
    return sorted(found, key=lambda each: (each.distribution != CORE, each.group, each.name)), failed


def _entries(distribution: importlib.metadata.Distribution, name: str, groups: tuple[str, ...]) -> list[Announcement]:
    return [
        Announcement(
            group=entry.group,
            name=entry.name,
            value=entry.value,
            distribution=name,
            version=distribution.version,
            summary=str(distribution.metadata["Summary"] or ""),
            requires=tuple(distribution.requires or ()),
        )
        for entry in distribution.entry_points
        if entry.group in groups
    ]


def _names(announcement: Announcement) -> tuple[str, str]:
    return _canonical(announcement.name), _canonical(announcement.distribution)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
