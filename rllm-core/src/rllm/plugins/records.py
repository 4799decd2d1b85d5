"""What is known about each plugin: where it comes from, what it offers and what went wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Announcement", "Failure", "Phase", "PluginRecord"]


class Phase(StrEnum):
    """How far a plugin had come when it failed."""

    DISCOVER = "discover"
    """Its distribution's metadata cannot be read, or `RLLM_PLUGINS` names it and it is not installed."""
    COMPATIBILITY = "compatibility"
    """It needs another version of rllm-core; nothing of it was imported."""
    IMPORT = "import"
    REGISTER = "register"
    """A hook is misspelt, a spec is malformed, or a name is taken."""
    CONSTRUCT = "construct"
    """Its module is fine, and the thing that was asked for could not be loaded."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """One entry point of one installed distribution; reading it imports nothing."""

    group: str
    name: str
    value: str
    """`package.module` or `package.module:attribute`."""
    distribution: str
    version: str
    summary: str = ""
    requires: tuple[str, ...] = ()
    """The distribution's requirements as its metadata has them."""

    @property
    def who(self) -> str:
        """The plugin as messages name it."""
        return f"plugin {self.name!r} of {self.distribution} {self.version}".rstrip()


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that went wrong with one plugin."""

    phase: Phase
    error: BaseException
    message: str
    """On one line, without the plugin's name."""
    remedy: str
    """What to do next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """One plugin as it stands now."""

    name: str
    """Of its entry point."""
    distribution: str
    version: str
    module: str
    group: str
    enabled: bool
    """False when `RLLM_PLUGINS` leaves it out."""
    loaded: bool
    """Imported and registered; its names can be asked for."""
    import_s: float
    """Seconds that importing its module took."""
    contributions: Mapping[str, tuple[str, ...]]
    """Names by kind, such as `{"benchmark": ("gsm8k",)}`; `command` and `event` are kinds here too."""
    failures: tuple[Failure, ...]
