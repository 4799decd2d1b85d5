"""The set of plugins of this process: loaded once, on first need, each behind its own fence.

Holds what every plugin announced and every failure. Looking a name up is `rllm.plugins.lookup`'s.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rllm.errors import DuplicateName, PluginError, RllmError, boundary, one_line
from rllm.interfaces.spec import GraderSpec, HarnessSpec, Spec
from rllm.plugins import remedies
from rllm.plugins.compatibility import check_compatible
from rllm.plugins.discovery import COMMANDS, LEGACY, PLUGINS, announced, core_version, selection
from rllm.plugins.hooks import Hooks
from rllm.plugins.listeners import Events
from rllm.plugins.loading import import_plugin
from rllm.plugins.records import Announcement, Failure, Phase, PluginRecord

if TYPE_CHECKING:
    import click

__all__ = ["Kernel", "Plugin"]

_log = logging.getLogger(__name__)

SLOW_IMPORT_S = 1.0
"""A plugin module that takes longer is reported: it should announce, and import its upstream later."""


@dataclass(slots=True, eq=False)
class Plugin:
    """One entry point and what became of it."""

    source: Announcement
    enabled: bool = True
    loaded: bool = False
    import_s: float = 0.0
    specs: list[Spec] = field(default_factory=list)
    """What it contributes; of a plugin that failed, what it had announced before it did."""
    commands: dict[str, click.Command | Announcement] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    @property
    def key(self) -> str:
        """How pluggy and the logs name it."""
        return f"{self.source.distribution}:{self.source.name}"

    def fail(self, phase: Phase, error: RllmError) -> None:
        """Record a failure, once."""
        failure = Failure(phase, error.__cause__ or error, one_line(error), remedies.remedy(self.source, phase, error))
        if not any(each.phase is phase and each.message == failure.message for each in self.failures):
            self.failures.append(failure)

    @contextmanager
    def recording(self, phase: Phase) -> Iterator[None]:
        """Whatever is raised inside becomes this plugin's recorded failure, and ends the block."""
        try:
            with boundary(PluginError, "raised"):
                yield
        except RllmError as error:
            self.fail(phase, error)
            _log.debug("%s failed in phase %s", self.source.who, phase, exc_info=error)


class Kernel:
    """Loads every enabled plugin when first asked; safe to ask from several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._plugins: list[Plugin] | None = None
        self._commands_read = False
        self._hooks = Hooks()
        self.events = Events(self.hooks)

    def plugins(self) -> list[Plugin]:
        """Every plugin that was found, in the order in which they were loaded, the core first."""
        with self._lock:
            if self._plugins is None:
                self._plugins = self._discover()
                running = core_version()
                for plugin in self._plugins:
                    if plugin.enabled and not plugin.failures:
                        self._load(plugin, running)
                for kind in sorted({spec.kind for plugin in self._plugins for spec in plugin.specs}):
                    self._note_duplicates(kind)
            return self._plugins

    def hooks(self) -> Hooks:
        """The hooks of all loaded plugins."""
        self.plugins()
        return self._hooks

    def offers(self, kind: str, name: str | None = None) -> list[tuple[Spec, Plugin]]:
        """Specs of `kind` (called `name`) with the plugin of each; a name twice is one that two offer."""
        offers = [
            (spec, plugin)
            for plugin in self.plugins()
            if plugin.loaded
            for spec in plugin.specs
            if spec.kind == kind and name in (None, spec.name)
        ]
        modern = {(spec.name, plugin.source.distribution) for spec, plugin in offers if _modern(plugin)}
        return [
            (spec, plugin)
            for spec, plugin in offers
            if _modern(plugin) or (spec.name, plugin.source.distribution) not in modern
        ]

    def commands(self) -> dict[str, list[tuple[click.Command | Announcement, Plugin]]]:
        """Commands by name: announced ones as their announcement, those of hooks as click commands."""
        with self._lock:
            plugins = self.plugins()
            if not self._commands_read:
                self._commands_read = True
                for plugin in plugins:
                    if plugin.loaded and plugin.source.group == PLUGINS:
                        with plugin.recording(Phase.REGISTER):
                            for command in self._hooks.commands(plugin.key):
                                plugin.commands.setdefault(str(command.name), command)
                self._note_duplicate_commands()
        return self._commands_by_name()

    def records(self) -> list[PluginRecord]:
        """Everything that is known, for listing; a distribution's static commands stand with its plugin."""
        self.commands()
        return [
            PluginRecord(
                name=plugin.source.name,
                distribution=plugin.source.distribution,
                version=plugin.source.version,
                module=plugin.source.value,
                group=plugin.source.group,
                enabled=plugin.enabled,
                loaded=plugin.loaded,
                import_s=plugin.import_s,
                contributions=self._contributions(plugin),
                failures=tuple(plugin.failures),
            )
            for plugin in self.plugins()
        ]

    def _discover(self) -> list[Plugin]:
        allowed = selection()
        found, broken = announced()
        plugins = [Plugin(each, enabled=allowed.allows(each)) for each in found if each.group != COMMANDS]
        for each in found:
            if each.group != COMMANDS:
                continue
            home = next((p for p in plugins if p.source.distribution == each.distribution), None)
            if home is None:
                home = Plugin(each, enabled=allowed.allows(each))
                plugins.append(home)
            home.commands[each.name] = each
        for name, failure in broken:
            plugins.append(Plugin(Announcement(PLUGINS, name, "", name, ""), failures=[failure]))
        for name in allowed.absent(found):
            plugin = Plugin(Announcement(PLUGINS, name, "", name, ""))
            message = f"RLLM_PLUGINS names {name!r}, and no plugin or distribution is called that"
            plugin.fail(Phase.DISCOVER, PluginError(message))
            plugins.append(plugin)
        return plugins

    def _load(self, plugin: Plugin, running: str) -> None:
        source = plugin.source
        with plugin.recording(Phase.COMPATIBILITY):
            check_compatible(source, running)
        if plugin.failures:
            return
        if source.group in LEGACY:
            spec_type = {"harness": HarnessSpec, "grader": GraderSpec}[LEGACY[source.group]]
            summary = f"published by {source.distribution} in the group {source.group}"
            plugin.specs.append(spec_type(name=source.name, summary=summary, target=source.value))
        elif source.group == PLUGINS:
            module: Any = None
            with plugin.recording(Phase.IMPORT):
                module, plugin.import_s = import_plugin(source)
            if plugin.import_s > SLOW_IMPORT_S:
                _log.warning(
                    "%s took %.1f s to import; leave it out with RLLM_PLUGINS or tell its authors",
                    source.who,
                    plugin.import_s,
                )
            if not plugin.failures:
                with plugin.recording(Phase.REGISTER):
                    for spec in self._hooks.register(plugin.key, module):
                        plugin.specs.append(spec)
        plugin.loaded = not plugin.failures

    def _note_duplicates(self, kind: str) -> None:
        offers = self.offers(kind)
        for name in sorted({spec.name for spec, _ in offers}):
            owners = [plugin for spec, plugin in offers if spec.name == name]
            if len(owners) > 1:
                for owner in owners:
                    owner.fail(Phase.REGISTER, duplicate(kind, name, owners))

    def _note_duplicate_commands(self) -> None:
        for name, offers in self._commands_by_name().items():
            owners = [plugin for _, plugin in offers]
            if len(owners) > 1:
                for owner in owners:
                    owner.fail(Phase.REGISTER, duplicate("command", name, owners))

    def _commands_by_name(self) -> dict[str, list[tuple[click.Command | Announcement, Plugin]]]:
        table: dict[str, list[tuple[click.Command | Announcement, Plugin]]] = {}
        for plugin in self.plugins():
            if plugin.enabled:
                for name, command in sorted(plugin.commands.items()):
                    table.setdefault(name, []).append((command, plugin))
        return table

    def _contributions(self, plugin: Plugin) -> dict[str, tuple[str, ...]]:
        if not plugin.loaded:
            return {}
        table: dict[str, list[str]] = {}
        for spec in plugin.specs:
            table.setdefault(spec.kind, []).append(spec.name)
        if plugin.commands:
            table["command"] = sorted(plugin.commands)
        if events := self._hooks.events_of(plugin.key):
            table["event"] = events
        return {kind: tuple(names) for kind, names in table.items()}


def duplicate(kind: str, name: str, owners: list[Plugin]) -> DuplicateName:
    """The error that names everybody who offers `name`."""
    who = " and ".join(dict.fromkeys(owner.source.who for owner in owners))
    return DuplicateName(
        f"{kind} {name!r} is offered more than once, by {who}; uninstall one, or choose with RLLM_PLUGINS"
    )


def _modern(plugin: Plugin) -> bool:
    return plugin.source.group == PLUGINS
