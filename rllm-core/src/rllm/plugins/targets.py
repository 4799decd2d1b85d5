"""From `module:attribute` to the object: what a spec points at, or what a user typed instead of a name."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from typing import Any

from rllm.errors import MissingDependency, PluginError, UnknownName, boundary
from rllm.interfaces.spec import Requirement
from rllm.plugins.suggest import did_you_mean

__all__ = ["import_path", "import_target", "installed", "is_path", "missing", "require"]


def is_path(name: str) -> bool:
    """Whether `name` is of the form `module:attribute`."""
    return ":" in name


def import_path(path: str) -> Any:
    """The object at a `module:attribute` that a user typed; the working directory counts, as for `python -m`.

    Raises `UnknownName` when the module or attribute does not exist, `PluginError` when importing it fails.
    """
    module, _, attribute = path.partition(":")
    if not re.fullmatch(r"[\w.]+", module) or not re.fullmatch(r"[\w.]+", attribute):
        raise UnknownName(f"{path!r} is not of the form 'package.module:attribute'")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    if not installed(module):
        raise UnknownName(f"there is no module {module!r} (from {path!r}) in {here} or the environment")
    with boundary(PluginError, f"import of {path!r}"):
        found = importlib.import_module(module)
    try:
        return functools.reduce(getattr, attribute.split("."), found)
    except AttributeError as error:
        part = str(error.name)
        names = [name for name in dir(error.obj) if not name.startswith("_")]
        raise UnknownName(f"{path!r}: there is no {part!r} in it{did_you_mean(part, names)}") from None


def import_target(target: str) -> Any:
    """The object that a plugin's `module:attribute` (or bare `module`) points at. Raises anything."""
    module, _, attribute = target.partition(":")
    found = importlib.import_module(module)
    return functools.reduce(getattr, attribute.split("."), found) if attribute else found


def missing(requirements: Iterable[Requirement]) -> list[Requirement]:
    """Those that are not installed."""
    return [each for each in requirements if not installed(each.module)]


def require(requirements: Iterable[Requirement], *, who: str) -> None:
    """Raise `MissingDependency` with the pip line unless everything is installed."""
    if lacking := missing(requirements):
        modules = ", ".join(repr(each.module) for each in lacking)
        lines = " && ".join(dict.fromkeys(each.install for each in lacking))
        raise MissingDependency(f"{who} needs {modules}, not installed here: {lines}")


def installed(module: str) -> bool:
    """Whether `module` could be imported; neither it nor its parent packages are."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:
        return top in sys.modules
    name = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return f"{name}.{part}" in sys.modules
        name = f"{name}.{part}"
        spec = importlib.machinery.PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec is not None
