"""The pluggy side: registering one plugin as a whole or not at all, and collecting what it contributes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pluggy

from rllm import hookspecs
from rllm.errors import PluginError
from rllm.interfaces.spec import (
    AlgorithmSpec,
    BackendSpec,
    BenchmarkSpec,
    HarnessSpec,
    SandboxSpec,
    Spec,
    TrackerSpec,
)
from rllm.plugins.suggest import did_you_mean

if TYPE_CHECKING:
    import click

__all__ = ["CONTRIBUTIONS", "EVENTS", "Hooks"]

CONTRIBUTIONS: dict[str, type[Spec]] = {
    "rllm_harnesses": HarnessSpec,
    "rllm_sandboxes": SandboxSpec,
    "rllm_backends": BackendSpec,
    "rllm_benchmarks": BenchmarkSpec,
    "rllm_algorithms": AlgorithmSpec,
    "rllm_trackers": TrackerSpec,
}
"""Hooks that return specs, and of which type."""
EVENTS = (
    "rllm_run_started",
    "rllm_rollout_finished",
    "rllm_step_finished",
    "rllm_evaluation_finished",
    "rllm_run_finished",
)
"""Hooks that tell."""
_COMMANDS = "rllm_commands"
_NAMES = (*CONTRIBUTIONS, _COMMANDS, *EVENTS)


class Hooks:
    """One pluggy plugin manager. Plugins are keyed by a string that the caller chooses."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager("rllm")
        self._manager.add_hookspecs(hookspecs)

    def register(self, key: str, plugin: Any) -> Iterator[Spec]:
        """Register `plugin` and yield the specs that it contributes.

        Raises `PluginError` on a misspelt hook, wrong arguments or a malformed spec, and whatever the
        plugin's hooks raise. Unless the iteration ends normally nothing of the plugin stays registered.
        """
        if self._manager.is_registered(plugin):
            raise PluginError(f"its module is registered already, as {self._manager.get_name(plugin)!r}")
        complete = False
        try:
            self._manager.register(plugin, name=key)
            self._verify(key, plugin)
            for hook, spec_type in CONTRIBUTIONS.items():
                for implementation in self._of(hook, key):
                    for spec in _called(implementation):
                        yield _valid(hook, spec_type, spec)
            complete = True
        except pluggy.PluginValidationError as error:
            raise PluginError(" ".join(str(error).split())) from error
        finally:
            if not complete and self._manager.has_plugin(key):
                self._manager.unregister(name=key)

    def commands(self, key: str) -> Iterable[click.Command]:
        """Commands that the plugin's `rllm_commands` returns; empty without that hook."""
        return [command for each in self._of(_COMMANDS, key) for command in _called(each)]

    def listeners(self, event: str) -> list[pluggy.HookImpl]:
        """Implementations of an event hook, in the order in which to call them."""
        implementations: list[pluggy.HookImpl] = getattr(self._manager.hook, event).get_hookimpls()
        return implementations[::-1]

    def events_of(self, key: str) -> list[str]:
        """Event hooks that the plugin implements."""
        return [event for event in EVENTS if self._of(event, key)]

    def _of(self, hook: str, key: str) -> list[pluggy.HookImpl]:
        return [each for each in self.listeners(hook) if each.plugin_name == key]

    def _verify(self, key: str, plugin: Any) -> None:
        """Refuse hooks that would never be called as their author expects."""
        for name in dir(plugin):
            if not name.startswith("rllm_") or not callable(getattr(plugin, name)):
                continue
            options = self._manager.parse_hookimpl_opts(plugin, name)
            if options is None:
                if name in _NAMES:
                    raise PluginError(f"{name} is not marked as a hook: put @hookimpl (from rllm.hookspecs) above it")
                continue
            hook = options["specname"] or name
            if hook not in _NAMES:
                raise PluginError(f"there is no hook called {hook!r}{did_you_mean(hook, _NAMES)}")
            if options["wrapper"] or options["hookwrapper"]:
                raise PluginError(f"{name} is a hook wrapper; hooks of rllm take none")
        self._manager.check_pending()


def _called(implementation: pluggy.HookImpl) -> Iterable[Any]:
    contributed: Any = implementation.function()
    if contributed is None:
        raise PluginError(f"{implementation.function.__name__} returned None; expected an iterable")
    found: Iterable[Any] = iter(contributed)
    return found


def _valid(hook: str, spec_type: type[Spec], spec: object) -> Spec:
    if not isinstance(spec, spec_type):
        raise PluginError(f"{hook} gave {spec!r}; expected a {spec_type.__name__}")
    if not re.fullmatch(r"[^\s:]+", spec.name):
        raise PluginError(f"{hook} gave the name {spec.name!r}; a name has no spaces and no colon")
    if not re.fullmatch(r"[\w.]+:[\w.]+", spec.target):
        raise PluginError(f"{hook} gave the target {spec.target!r} for {spec.name!r}; expected 'module:attribute'")
    return spec
