"""Commands that plugins add to `rllm`: listed from metadata, imported when invoked.

A plugin names its commands in the entry-point group `rllm.commands` (see docs/decisions/0003): their names
are then in `rllm --help` at no cost. Commands that only the hook `rllm_commands` returns can be invoked too,
but finding them means importing every plugin, so it is done only for a name that nobody announced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rllm.errors import PluginError
from rllm.plugins.discovery import COMMANDS, announced, core_version, selection
from rllm.plugins.records import Announcement

if TYPE_CHECKING:
    import click

__all__ = ["announced_commands", "load_command"]


def announced_commands() -> dict[str, list[Announcement]]:
    """Statically announced commands by name, sorted; more than one entry means a clash. Imports no plugin."""
    allowed = selection()
    table: dict[str, list[Announcement]] = {}
    for each in announced(COMMANDS)[0]:
        if allowed.allows(each):
            table.setdefault(each.name, []).append(each)
    return dict(sorted(table.items()))


def load_command(name: str) -> click.Command | None:
    """The plugin command called `name`, or None when no plugin has one.

    Raises `DuplicateName` when two plugins offer it, `PluginError` naming the plugin when it cannot be
    loaded.
    """
    static = announced_commands().get(name, [])
    if len(static) == 1:
        return _imported(static[0])
    from rllm import plugins

    offers = plugins.current().commands().get(name, [])
    if len(offers) > 1:
        from rllm.plugins.kernel import duplicate

        raise duplicate("command", name, [plugin for _, plugin in offers])
    if not offers:
        return None
    command, _ = offers[0]
    return _imported(command) if isinstance(command, Announcement) else command


def _imported(source: Announcement) -> click.Command:
    import click

    from rllm.plugins.compatibility import check_compatible
    from rllm.plugins.loading import import_plugin

    try:
        check_compatible(source, core_version())
        command: Any = import_plugin(source)[0]
    except PluginError as error:
        raise PluginError(f"command {source.name!r} of {source.who}: {error}") from error
    if not isinstance(command, click.Command):
        raise PluginError(f"command {source.name!r} of {source.who}: expected a click command, found {command!r}")
    return command
