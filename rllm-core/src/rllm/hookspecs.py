"""Every hook of rllm. A plugin implements any of them in the module that its `rllm` entry point names.

Contribution hooks return specs and import nothing heavy. Event hooks tell; what they return is ignored, and a hook
that raises is reported with its plugin's name and does not stop the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import click

    from rllm.interfaces.spec import (
        AlgorithmSpec,
        BackendSpec,
        BenchmarkSpec,
        HarnessSpec,
        SandboxSpec,
        TrackerSpec,
    )
    from rllm.types import Episode

__all__ = ["hookimpl", "hookspec"]

hookspec = pluggy.HookspecMarker("rllm")
hookimpl = pluggy.HookimplMarker("rllm")


@hookspec
def rllm_harnesses() -> Iterable[HarnessSpec]:  # type: ignore[empty-body]
    """Agent programs that this plugin offers."""


@hookspec
def rllm_sandboxes() -> Iterable[SandboxSpec]:  # type: ignore[empty-body]
    """Sandbox providers that this plugin offers."""


@hookspec
def rllm_backends() -> Iterable[BackendSpec]:  # type: ignore[empty-body]
    """Training backends that this plugin offers."""


@hookspec
def rllm_benchmarks() -> Iterable[BenchmarkSpec]:  # type: ignore[empty-body]
    """Benchmarks that this plugin offers."""


@hookspec
def rllm_algorithms() -> Iterable[AlgorithmSpec]:  # type: ignore[empty-body]
    """Advantage estimators that this plugin offers."""


@hookspec
def rllm_trackers() -> Iterable[TrackerSpec]:  # type: ignore[empty-body]
    """Metrics sinks that this plugin offers."""


@hookspec
def rllm_commands() -> Iterable[click.Command]:  # type: ignore[empty-body]
    """Commands to add to `rllm`. They must import what they need when they run."""


@hookspec
def rllm_run_started(run_id: str, path: Path, config: Mapping[str, Any]) -> None:
    """A run (training or evaluation) has begun; its folder exists."""


@hookspec
def rllm_rollout_finished(run_id: str, episode: Episode) -> None:
    """An attempt has ended, with whatever status."""


@hookspec
def rllm_step_finished(run_id: str, step: int, metrics: Mapping[str, float]) -> None:
    """The learner has taken a step and published its weights."""


@hookspec
def rllm_evaluation_finished(run_id: str, summary: Mapping[str, Any]) -> None:
    """An evaluation, or one validation during training, has ended."""


@hookspec
def rllm_run_finished(run_id: str, status: str) -> None:
    """The run has ended: `finished`, `failed` or `interrupted`."""
