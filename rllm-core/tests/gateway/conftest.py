"""A gateway over the toy model, and clients for it. `gateway_toy` is importable from every test of this folder."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

sys.path.insert(0, str(Path(__file__).parent))

from gateway_toy import CHATML, Script, ScriptedSampler, Toy, tokenizer_dir

from rllm.gateway import Gateway, GatewayConfig, Renderer, TokenUpstream, load_renderer
from rllm.types import AgentConfig


class Rig:
    """A served toy model."""

    def __init__(self, gateway: Gateway, sampler: ScriptedSampler, toy: Toy, renderer: Renderer) -> None:
        self.gateway = gateway
        self.sampler = sampler
        self.toy = toy
        self.renderer = renderer


Serve = Callable[..., AbstractAsyncContextManager[Rig]]


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_dir(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def toy(model_dir: Path) -> Toy:
    return Toy(model_dir)


@pytest.fixture
def serve(tmp_path: Path, toy: Toy) -> Serve:
    """`async with serve(script or texts, template=…, **sampler options) as rig:`."""

    @asynccontextmanager
    async def serving(
        script: Script | Sequence[str] | str,
        *,
        template: str = CHATML,
        config: GatewayConfig | None = None,
        **options: Any,
    ) -> AsyncIterator[Rig]:
        path = tokenizer_dir(tmp_path / "model", template)
        sampler = ScriptedSampler(script if callable(script) else texts(toy, script), **options)
        renderer = load_renderer(path, "toy")
        async with Gateway(TokenUpstream(sampler, renderer, "toy"), config) as gateway:
            yield Rig(gateway, sampler, toy, renderer)

    return serving


def texts(toy: Toy, replies: Sequence[str] | str) -> Script:
    """A script that says `replies` in turn and the last one for ever, each with the end of turn."""
    rest = [replies] if isinstance(replies, str) else list(replies)

    def script(prompt: Any, params: Any) -> list[int]:
        text = rest.pop(0) if len(rest) > 1 else rest[0]
        return toy.ids(text + "<|im_end|>")

    return script


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[AgentConfig], AsyncOpenAI]]:
    """An official client for an agent's config; closed at the end."""
    clients: list[AsyncOpenAI] = []

    def connecting(config: AgentConfig, **options: Any) -> AsyncOpenAI:
        options.setdefault("max_retries", 0)
        clients.append(AsyncOpenAI(base_url=config.base_url, api_key=config.api_key, **options))
        return clients[-1]

    yield connecting
    for client in clients:
        await client.close()
