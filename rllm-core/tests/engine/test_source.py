"""Agents by name or path, backends as upstreams, and the gateway as it is configured."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rllm.config.schema import GatewayConfig
from rllm.engine.source import construct_agent, open_backend, serve
from rllm.errors import BackendError, ConfigError
from rllm.gateway import MessageUpstream
from rllm.testing.table import TableBackend

MODULE = """
class Agent:
    def __init__(self, *, turns=1):
        self.turns = turns

    async def run(self, task, config, env):
        return None


def make(turns=2):
    return Agent(turns=turns)


def flow(task, config):
    return None


ready = Agent(turns=9)
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "source_probe.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("source_probe", None)


@pytest.mark.parametrize(
    ("name", "options", "turns"),
    [
        ("Agent", {}, 1),
        ("Agent", {"turns": 5}, 5),
        ("make", {}, 2),
        ("make", {"turns": 5}, 5),
        ("ready", {}, 9),
    ],
)
def test_a_path_may_lead_to_a_class_a_factory_or_an_object(name: str, options: dict[str, Any], turns: int) -> None:
    agent: Any = construct_agent(f"source_probe:{name}", options)
    assert agent.turns == turns


def test_a_path_may_lead_to_an_agent_function_which_takes_no_options() -> None:
    assert hasattr(construct_agent("source_probe:flow", {}), "run")
    with pytest.raises(ConfigError, match=r"agent\.options"):
        construct_agent("source_probe:flow", {"turns": 3})
    with pytest.raises(ConfigError, match=r"does not accept its options \(trns\)"):
        construct_agent("source_probe:Agent", {"trns": 3})


@pytest.mark.parametrize("method", ["open", "close"])
async def test_a_backend_that_raises_is_named_and_always_closed(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    closed = 0

    async def fail(self: TableBackend, **settings: Any) -> Any:
        nonlocal closed
        closed += method == "close"
        raise RuntimeError("CUDA error")

    async def close(self: TableBackend) -> None:
        nonlocal closed
        closed += 1
        await original_close(self)

    original_close = TableBackend.close
    monkeypatch.setattr(TableBackend, "close", close)
    monkeypatch.setattr(TableBackend, method, fail)
    backend = TableBackend()
    with pytest.raises(BackendError, match="'table': RuntimeError: CUDA error"):
        async with open_backend(backend, model="table", seed=0, trainable=False):
            pass
    assert closed == 1
    await original_close(backend)


async def test_an_address_that_the_configuration_names_is_listened_on() -> None:
    upstream = MessageUpstream("http://127.0.0.1:9/v1", "m")
    async with serve(upstream, GatewayConfig(host="0.0.0.0")) as gateway:
        assert gateway.url.startswith("http://127.0.0.1:")
    async with serve(upstream, GatewayConfig()) as gateway:
        assert gateway.config.host == "127.0.0.1"
        assert not gateway.config.allow_remote
