"""Settings that suit a model: what its backend suggests, below everything that the user sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllm import plugins
from rllm.errors import RllmError
from rllm.interfaces.spec import BackendSpec

__all__ = ["model_defaults"]


def model_defaults(backend: str, model: str) -> Mapping[str, Any]:
    """Dotted keys that `backend` suggests for `model`; empty for an unknown one, which is reported elsewhere."""
    try:
        spec = plugins.registry("backend").spec(backend)
    except RllmError:
        return {}
    if not isinstance(spec, BackendSpec):
        return {}
    return spec.defaults.get(model) or spec.defaults.get(model.partition(":")[0]) or {}
