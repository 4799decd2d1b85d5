"""Installed distributions without an installer: a module and its metadata in a folder that is put on the path."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["write_distribution"]


def write_distribution(
    site: Path,
    name: str,
    *,
    version: str = "1.0",
    summary: str = "",
    entry_points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str] | None = None,
    requires: Iterable[str] = (),
) -> None:
    """Write a distribution into the folder `site` as an installer would leave it there.

    `entry_points` is group -> name -> value, `modules` is dotted name -> source (dedented), `requires` are requirement
    lines. `site` must be on `sys.path`, or in PYTHONPATH, for it to count as installed.
    """
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Summary: {summary}"]
    lines += [f"Requires-Dist: {each}" for each in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sections = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        for group, entries in entry_points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(sections), encoding="utf-8")
    for module, source in (modules or {}).items():
        path = site / (module.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source), encoding="utf-8")
