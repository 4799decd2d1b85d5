"""A folder of out-of-tree distributions on the path of this process, and a kernel that has not looked yet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rllm import plugins
from rllm.plugins import PluginRecord
from rllm.testing.distributions import write_distribution

HEAD = """
from rllm.hookspecs import hookimpl
from rllm.interfaces.spec import *
"""
HOOKS = {
    "algorithm": ("rllm_algorithms", "AlgorithmSpec"),
    "backend": ("rllm_backends", "BackendSpec"),
    "benchmark": ("rllm_benchmarks", "BenchmarkSpec"),
    "harness": ("rllm_harnesses", "HarnessSpec"),
    "sandbox": ("rllm_sandboxes", "SandboxSpec"),
    "tracker": ("rllm_trackers", "TrackerSpec"),
}


class Site:
    """Where the distributions of one test live."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write = write_distribution

    def plugin(self, distribution: str, source: str, *, version: str = "1.0", requires: tuple[str, ...] = ()) -> str:
        """Install a plugin whose module has `source`, and return that module's name."""
        module = distribution.replace("-", "_") + "_plugin"
        name = distribution.removeprefix("rllm-")
        write_distribution(
            self.path,
            distribution,
            version=version,
            entry_points={"rllm": {name: module}},
            modules={module: HEAD + source},
            requires=requires,
        )
        return module

    def offering(self, distribution: str, kind: str, name: str, target: str = "json:loads", more: str = "") -> str:
        """Install a plugin that offers one thing."""
        hook, spec = HOOKS[kind]
        return self.plugin(
            distribution,
            f"@hookimpl\ndef {hook}():\n    return [{spec}(name={name!r}, summary='s', target={target!r}, {more})]\n",
        )

    def record(self, distribution: str) -> PluginRecord:
        """The inventory's record of a distribution's plugin."""
        (found,) = (each for each in plugins.inventory() if each.distribution == distribution)
        return found


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An empty folder of distributions, first on the path."""
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.syspath_prepend(str(path))
    monkeypatch.delenv("RLLM_PLUGINS", raising=False)
    before = set(sys.modules)
    plugins.reset()
    yield Site(path)
    plugins.reset()
    for name in set(sys.modules) - before:
        if str(path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
