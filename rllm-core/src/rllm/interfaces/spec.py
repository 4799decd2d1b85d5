"""What a plugin announces: metadata plus where the code is. Importing a spec imports no upstream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

__all__ = [
    "AlgorithmSpec",
    "BackendSpec",
    "BenchmarkSpec",
    "GraderSpec",
    "HarnessSpec",
    "Requirement",
    "SandboxSpec",
    "Spec",
    "TrackerSpec",
]


@dataclass(frozen=True, slots=True)
class Requirement:
    """Something that must be installed before the target can be constructed."""

    module: str
    """Import name, looked up without importing it."""
    install: str
    """What to run, such as `pip install rllm-backend-local`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One named thing of one kind."""

    kind: ClassVar[str] = ""
    """Singular noun used in messages."""
    name: str
    summary: str
    target: str
    """`package.module:attribute`, imported when the thing is asked for."""
    requires: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessSpec(Spec):
    """An agent program. The target is called without arguments or with the agent's options as keywords."""

    kind: ClassVar[str] = "harness"
    needs_sandbox: bool = False
    protocol: str = "chat"
    """Wire protocol that it speaks: chat, completions, responses, messages or gemini."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec(Spec):
    """A sandbox provider."""

    kind: ClassVar[str] = "sandbox"
    capabilities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec(Spec):
    """A training backend. The target is a class constructed with its own options as keywords."""

    kind: ClassVar[str] = "backend"
    models: tuple[str, ...] = ()
    """Model names that this backend can open by itself, such as `embedded`; tells which backend serves them."""
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Model name -> configuration keys that suit it, such as `optimizer.lr`; what the user sets comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSpec(Spec):
    """A benchmark. The target is a class constructed with the benchmark's options as keywords."""

    kind: ClassVar[str] = "benchmark"
    splits: tuple[str, ...] = ("train", "test")
    default_agent: str = "react"
    procedural: bool = False
    """Tasks are generated; nothing is downloaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderSpec(Spec):
    """A grader that an existing package publishes in the entry-point group `rllm.evaluators`."""

    kind: ClassVar[str] = "grader"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSpec(Spec):
    """An advantage estimator: the target is a pure function, see `rllm.interfaces.algorithm`."""

    kind: ClassVar[str] = "algorithm"
    loss: str = "policy_gradient"
    """Default loss."""
    aggregation: str = "token-mean"
    """Default aggregation of the loss over tokens and sequences."""
    params: tuple[str, ...] = ()
    """Names that the estimator reads from its parameters; any other is refused."""
    needs_group: bool = True
    """Groups of one give no signal."""
    paper: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSpec(Spec):
    """A metrics sink. The target is a class constructed with its options as keywords."""

    kind: ClassVar[str] = "tracker"
    options: tuple[str, ...] = field(default=())
