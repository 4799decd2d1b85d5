"""Whether a plugin was made for the rllm-core that is running; decided from metadata, before any import."""

from __future__ import annotations

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rllm.errors import PluginError
from rllm.plugins.discovery import CORE
from rllm.plugins.records import Announcement

__all__ = ["check_compatible"]


def check_compatible(plugin: Announcement, running: str) -> None:
    """Raise `PluginError` unless every requirement of `plugin` on rllm-core admits version `running`.

    A plugin that states no requirement is taken at its word. Pre-releases of the core count as versions.
    """
    for text in plugin.requires:
        requirement = Requirement(text)
        if canonicalize_name(requirement.name) != CORE:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if not requirement.specifier.contains(running, prereleases=True):
            raise PluginError(f"it needs {CORE}{requirement.specifier}, and {CORE} {running} is running")
