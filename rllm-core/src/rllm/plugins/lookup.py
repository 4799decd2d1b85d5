"""Looking things up by name: the one door between a name that a user types and a plugin's code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rllm.errors import PluginError, RllmError, UnknownName, boundary
from rllm.interfaces import spec as specs
from rllm.interfaces.spec import Spec
from rllm.plugins.discovery import LEGACY
from rllm.plugins.records import Failure, Phase
from rllm.plugins.suggest import did_you_mean, nearest
from rllm.plugins.targets import import_path, import_target, is_path, require
from rllm.plugins.wellknown import package_for, well_known

if TYPE_CHECKING:
    from rllm.plugins.kernel import Kernel, Plugin

__all__ = ["KINDS", "Registry"]

KINDS: dict[str, type[Spec]] = {
    each.kind: each
    for each in (
        specs.AlgorithmSpec,
        specs.BackendSpec,
        specs.BenchmarkSpec,
        specs.GraderSpec,
        specs.HarnessSpec,
        specs.SandboxSpec,
        specs.TrackerSpec,
    )
}
"""Every kind of thing that has a name."""


class Registry:
    """Everything of one kind. Creating it loads nothing; asking it loads the plugins; `load` their code."""

    def __init__(self, kind: str, kernel: Callable[[], Kernel]) -> None:
        if kind not in KINDS:
            known = ", ".join(sorted(KINDS))
            raise UnknownName(f"no kind is called {kind!r}{did_you_mean(kind, KINDS)} Kinds: {known}.")
        self.kind = kind
        self._kernel = kernel

    def names(self) -> list[str]:
        """Names that can be asked for, sorted. A name that two plugins offer is not one of them."""
        return [spec.name for spec in self.specs()]

    def specs(self) -> list[Spec]:
        """The spec behind each of `names()`, in the same order."""
        table: dict[str, list[Spec]] = {}
        for spec, _ in self._kernel().offers(self.kind):
            table.setdefault(spec.name, []).append(spec)
        return [found[0] for _, found in sorted(table.items()) if len(found) == 1]

    def spec(self, name: str) -> Spec:
        """The spec called `name`; for `module:attribute` a bare one that points there, which is not looked
        at yet.

        Raises `UnknownName` with the nearest name and the package to install, `DuplicateName` when two
        plugins offer it, and the recorded `PluginError` when the plugin that offers it has failed.
        """
        return self._find(name)[0]

    def load(self, name: str) -> Any:
        """The object that the spec's target points at, imported now.

        Raises what `spec` raises; `MissingDependency` with the pip line when something it requires is not
        installed; `PluginError` naming the plugin, recorded under the phase `construct`, when the import
        fails. What an existing package publishes in `rllm.agents` or `rllm.evaluators` is wrapped, so that
        calling the result gives it.
        """
        if is_path(name):
            return import_path(name)
        spec, plugin = self._find(name)
        assert plugin is not None  # only a path has none
        who = f"{self.kind} {name!r} ({plugin.source.who})"
        require(spec.requires, who=who)
        try:
            with boundary(PluginError, f"{who}, import of {spec.target!r}"):
                target = import_target(spec.target)
        except RllmError as error:
            plugin.fail(Phase.CONSTRUCT, error)
            raise
        return functools.partial(_published, target) if plugin.source.group in LEGACY else target

    def _find(self, name: str) -> tuple[Spec, Plugin | None]:
        if is_path(name):
            return KINDS[self.kind](name=name, summary="named by its path", target=name), None
        offers = self._kernel().offers(self.kind, name)
        if len(offers) == 1:
            return offers[0]
        if offers:
            from rllm.plugins.kernel import duplicate

            raise duplicate(self.kind, name, [plugin for _, plugin in offers])
        self._raise_if_failed(name)
        raise UnknownName(self._unknown(name))

    def _raise_if_failed(self, name: str) -> None:
        """Raise the recorded failure of a plugin that would have offered `name`, if that is knowable."""
        package = package_for(self.kind, name)
        for plugin in self._kernel().plugins():
            source = plugin.source
            offered = any(spec.kind == self.kind and spec.name == name for spec in plugin.specs)
            likely = source.distribution in (package, f"rllm-{self.kind}-{name}") or source.name == name
            if not plugin.loaded and plugin.failures and (offered or likely):
                raise failed(plugin, plugin.failures[0]) from plugin.failures[0].error
            if not plugin.enabled and likely:
                raise UnknownName(
                    f"{self.kind} {name!r} is left out with {source.who}: add {source.name!r} to RLLM_PLUGINS"
                )

    def _unknown(self, name: str) -> str:
        names = self.names()
        match = nearest(name, [*names, *well_known(self.kind)])
        text = f"no {self.kind} is called {name!r}"
        package = package_for(self.kind, match) if match and match not in names else None
        if match == name:
            text += f"; it is not installed: pip install {package}."
        elif match:
            text += f"; did you mean {match!r}?"
            text += f" It is not installed: pip install {package}." if package else ""
        else:
            text += "."
        text += f" Installed: {', '.join(names) or 'none'}."
        broken = [plugin.source.name for plugin in self._kernel().plugins() if plugin.failures]
        if broken:
            text += f" Plugins that failed: {', '.join(broken)} (see rllm plugins check)."
        return text


def failed(plugin: Plugin, failure: Failure) -> PluginError:
    """A recorded failure as the error to raise."""
    return PluginError(f"{plugin.source.who} failed ({failure.phase}): {failure.message}. Remedy: {failure.remedy}")


def _published(target: Any) -> Any:
    return target() if isinstance(target, type) else target
