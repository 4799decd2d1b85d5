"""What this package offers to rllm. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from rllm.hookspecs import hookimpl
from rllm.interfaces.spec import BackendSpec, Requirement

__all__ = ["rllm_backends"]

_INSTALL = "pip install rllm-backend-local"


@hookimpl
def rllm_backends() -> Iterable[BackendSpec]:
    """The local backend."""
    return [
        BackendSpec(
            name="local",
            summary="train and sample on this machine with torch and transformers",
            target="rllm_backend_local.backend:LocalBackend",
            models=("embedded", "smollm2"),
            requires=tuple(
                Requirement(module, _INSTALL) for module in ("torch", "transformers", "peft", "safetensors", "gguf")
            ),
        )
    ]
