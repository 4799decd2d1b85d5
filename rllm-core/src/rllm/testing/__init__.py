"""For authors of plugins and for our own tests: conformance kits and scripted fakes.

A kit is a pytest class. Subclass it, fill in its one fixture, and each test is a promise of the contract:

    class TestMine(BackendConformance):
        model = "bigram"

        @pytest.fixture
        def make_backend(self):
            return MyBackend

Importing this package imports no pytest; a kit does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllm.testing.algorithm_kit import AlgorithmConformance
    from rllm.testing.backend_kit import BackendConformance
    from rllm.testing.benchmark_kit import BenchmarkConformance
    from rllm.testing.harness_kit import HarnessConformance
    from rllm.testing.model_server import ScriptedModelServer
    from rllm.testing.sandbox_kit import SandboxConformance
    from rllm.testing.scripted import ByteCodec, ScriptedSampler
    from rllm.testing.tracker_kit import TrackerConformance

__all__ = [
    "AlgorithmConformance",
    "BackendConformance",
    "BenchmarkConformance",
    "ByteCodec",
    "HarnessConformance",
    "SandboxConformance",
    "ScriptedModelServer",
    "ScriptedSampler",
    "TrackerConformance",
]

_WHERE = {
    "AlgorithmConformance": "algorithm_kit",
    "BackendConformance": "backend_kit",
    "BenchmarkConformance": "benchmark_kit",
    "ByteCodec": "scripted",
    "HarnessConformance": "harness_kit",
    "SandboxConformance": "sandbox_kit",
    "ScriptedModelServer": "model_server",
    "ScriptedSampler": "scripted",
    "TrackerConformance": "tracker_kit",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
