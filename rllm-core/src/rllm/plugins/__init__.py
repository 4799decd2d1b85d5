"""Plugins: what is installed, looked up by name, told of events.

    from rllm import plugins
    plugins.registry("benchmark").load("gsm8k")
    plugins.events().rllm_step_finished(run_id=run, step=3, metrics=metrics)

Importing this imports neither pluggy nor stevedore nor any plugin; the first question does.
`RLLM_PLUGINS=none` or a comma list of entry points or distributions restricts what is loaded; the core's own
built-ins always are.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rllm.plugins.records import Failure, Phase, PluginRecord

if TYPE_CHECKING:
    from rllm.plugins.kernel import Kernel
    from rllm.plugins.listeners import Events
    from rllm.plugins.lookup import Registry

__all__ = [
    "Failure",
    "Phase",
    "PluginRecord",
    "events",
    "inventory",
    "registry",
    "reset",
    "resolved",
]

_lock = threading.Lock()
_kernel: Kernel | None = None


def registry(kind: str) -> Registry:
    """Things of one kind: harness, sandbox, backend, benchmark, algorithm, tracker or grader."""
    from rllm.plugins.lookup import Registry

    return Registry(kind, current)


def events() -> Events:
    """The event hooks as methods. A listener that raises is logged once and counted; the caller goes on."""
    return current().events


def inventory() -> list[PluginRecord]:
    """Every plugin that was found, the core first: what it offers, what went wrong. Loads them all."""
    return current().records()


def resolved() -> dict[str, str]:
    """Distribution and version of every loaded plugin, sorted: what a run's manifest records."""
    return {
        plugin.source.distribution: plugin.source.version
        for plugin in sorted(current().plugins(), key=lambda each: each.source.distribution)
        if plugin.loaded
    }


def current() -> Kernel:
    """The process's set of plugins; most callers want one of the functions above."""
    global _kernel
    with _lock:
        if _kernel is None:
            from rllm.plugins.kernel import Kernel

            _kernel = Kernel()
        return _kernel


def reset() -> None:
    """Forget everything, so that the next question discovers anew. For tests."""
    global _kernel
    with _lock:
        _kernel = None
