"""A click group that knows its commands without importing them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from rllm.plugins.commands import announced_commands, load_command
from rllm.plugins.suggest import did_you_mean

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """Commands of a static table `{name: ("module:attribute", "help line")}`, then those of plugins.

    Listing imports no command and no plugin. A command of the table cannot be replaced by a plugin.
    """

    def __init__(self, *, table: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(**settings)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The table in its own order, then the announced commands of plugins."""
        return [*self._table, *(name for name in announced_commands() if name not in self._table)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command. Raises `PluginError` when a plugin's cannot be loaded."""
        if cmd_name not in self._table:
            return load_command(cmd_name)
        module, _, attribute = self._table[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but a mistyped command is told what it might have been."""
        name = args[0]
        command = None if name.startswith("-") else self.get_command(ctx, name)
        if command is None and not name.startswith("-"):
            ctx.fail(f"no command is called {name!r}{did_you_mean(name, self.list_commands(ctx)) or '.'}")
        return (name, command, args[1:]) if command else super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Help lines from the table, and the name of the distribution for a plugin's command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._table.items()])
        extra = {
            name: " and ".join(f"{each.summary} ({each.distribution})".strip() for each in found)
            for name, found in announced_commands().items()
            if name not in self._table
        }
        if extra:
            with formatter.section("Commands of plugins"):
                formatter.write_dl(list(extra.items()))
