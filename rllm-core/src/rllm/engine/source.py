"""Where replies come from: a backend that samples tokens, or a provider that is reached over HTTP.

Both end as an upstream of the gateway, so that evaluation and training take the same path.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rllm import plugins
from rllm.errors import BackendError, ConfigError, UnknownName, boundary
from rllm.gateway import TokenUpstream, load_renderer
from rllm.interfaces.backend import Backend, ModelInfo
from rllm.interfaces.spec import BackendSpec

__all__ = ["backend_for_model", "construct", "open_backend"]


def construct(kind: str, name: str, options: Mapping[str, Any]) -> Any:
    """An instance of the plugin called `name`, given its options as keywords. A wrong option is a ConfigError."""
    target = plugins.registry(kind).load(name)
    try:
        with boundary(ConfigError, f"{kind} {name!r}"):
            return target(**options) if callable(target) else target
    except ConfigError as error:
        if isinstance(error.__cause__, TypeError):
            given = ", ".join(sorted(options)) or "none"
            raise ConfigError(f"{kind} {name!r} does not accept its options ({given}): {error.__cause__}") from None
        raise


def backend_for_model(model: str) -> str:
    """The backend that opens `model` by itself: the one whose spec lists it, else the only one installed."""
    registry = plugins.registry("backend")
    specs = [spec for spec in registry.specs() if isinstance(spec, BackendSpec)]
    family = model.partition(":")[0]
    for spec in specs:
        if model in spec.models or family in spec.models:
            return spec.name
    if len(specs) == 1:
        return specs[0].name
    if not specs:
        raise UnknownName(
            f"no backend is installed to serve {model!r}: pip install rllm-backend-local, "
            "or give --base-url for a model server"
        )
    raise ConfigError(f"which backend shall serve {model!r}? give --backend {' or '.join(s.name for s in specs)}")


@asynccontextmanager
async def open_backend(
    backend: Backend, *, model: str, seed: int, trainable: bool
) -> AsyncIterator[tuple[ModelInfo, TokenUpstream]]:
    """The opened backend as an upstream of the gateway; closed at the end, whatever happens."""
    try:
        async with boundary(BackendError, "backend"):
            info = await backend.open(model=model, seed=seed, trainable=trainable)
        renderer = load_renderer(info.tokenizer_dir, info.name)
        yield info, TokenUpstream(backend.sampler, renderer, info.name)
    finally:
        await backend.close()
