"""Where replies come from: a backend that samples tokens, or a provider that is reached over HTTP.

Both end as an upstream of the gateway, so that evaluation and training take the same path.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rllm import plugins
from rllm.config.schema import GatewayConfig as GatewaySection
from rllm.engine.functions import as_harness
from rllm.errors import BackendError, ConfigError, UnknownName, boundary
from rllm.gateway import Gateway, GatewayConfig, TokenUpstream, load_renderer
from rllm.gateway.wire import Upstream
from rllm.interfaces.backend import Backend, ModelInfo
from rllm.interfaces.harness import Harness
from rllm.interfaces.spec import BackendSpec
from rllm.plugins.targets import is_path

__all__ = ["backend_for_model", "construct", "construct_agent", "open_backend", "serve"]


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


def construct_agent(name: str, options: Mapping[str, Any]) -> Harness:
    """The agent called `name`: a harness given its options, or the function or object at `module:attribute`."""
    found = plugins.registry("harness").load(name) if is_path(name) else None
    if found is None or isinstance(found, type) or _makes_an_agent(found, options):
        found = construct("harness", name, options)
    elif options:
        raise ConfigError(f"agent {name!r} is not made by anything that takes agent.options ({', '.join(options)})")
    with boundary(ConfigError, f"agent {name!r}"):
        return as_harness(found)


def _makes_an_agent(found: Any, options: Mapping[str, Any]) -> bool:
    """Whether it is to be called with the options, rather than with (task, config)."""
    if hasattr(found, "run") or not callable(found):
        return False
    try:
        inspect.signature(found).bind(**options)
    except (TypeError, ValueError):
        return False
    return True


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
    who = f"model {model!r}"
    try:
        async with boundary(BackendError, who):
            info = await backend.open(model=model, seed=seed, trainable=trainable)
        renderer = load_renderer(info.tokenizer_dir, info.name)
        yield info, TokenUpstream(backend.sampler, renderer, info.name)
    finally:
        async with boundary(BackendError, who):
            await backend.close()


def serve(upstream: Upstream, section: GatewaySection) -> Gateway:
    """The gateway as it is configured. An address that the configuration names is meant, whoever can reach it."""
    allowed = section.host != GatewaySection().host
    return Gateway(upstream, GatewayConfig(host=section.host, port=section.port, allow_remote=allowed))
