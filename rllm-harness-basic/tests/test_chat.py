from __future__ import annotations

import asyncio
import gc
import json
import socket
import warnings
from typing import Any

import pytest

from rllm.errors import ContextOverflow, RequestError, UpstreamError
from rllm.types import AgentConfig, Message
from rllm_harness_basic.chat import ChatClient

MESSAGES: list[Message] = [{"role": "user", "content": "hi"}]


def error_body(message: str, code: str | None = None) -> str:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": code}})


async def failure(server: Any, status: int, body: str, headers: dict[str, str] | None = None) -> Exception:
    """What `complete` raises when the server answers so."""
    server.status, server.body, server.headers = status, body, headers or {}
    client = ChatClient()
    with pytest.raises((RequestError, UpstreamError)) as caught:
        await client.complete(server.config("sk-secret"), MESSAGES)
    await client.close()
    assert "sk-secret" not in str(caught.value)
    return caught.value


async def test_a_refusal_is_the_requests_fault_and_keeps_status_code_and_message(server: Any) -> None:
    error = await failure(server, 404, error_body("no such model 'tiny'", "model_not_found"))
    assert isinstance(error, RequestError)
    assert (error.status, error.code) == (404, "model_not_found")
    assert f"'{server.base_url}/chat/completions' answered 404: no such model 'tiny'" in str(error)


async def test_a_prompt_that_does_not_fit_is_told_apart(server: Any) -> None:
    error = await failure(server, 400, error_body("too long", "context_length_exceeded"))
    assert isinstance(error, ContextOverflow)


@pytest.mark.parametrize("status", [302, 408, 409, 425, 429, 500, 503])
async def test_a_server_that_fails_or_is_busy_is_not_the_requests_fault(server: Any, status: int) -> None:
    body = error_body("try later")
    error = await failure(server, status, body, {"Retry-After": "7", "Location": "/elsewhere"})
    assert isinstance(error, UpstreamError)
    assert (error.status, error.body, error.retry_after) == (status, body, "7")
    assert "try later" in str(error)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("", "no message"),
        ("<html>gone</html>", "<html>gone</html>"),
        ('{"detail": "nope"}', "nope"),
        ('{"error": "flat"}', "flat"),
        ('{"error": {"message": null}}', "None"),
        ("[" * 100_000, "[[["),
        ("x" * 100_000, "xxx"),
    ],
)
async def test_an_error_of_another_shape_is_shown_as_it_is_but_not_at_length(server: Any, body: str, told: str) -> None:
    error = await failure(server, 422, body)
    assert told in str(error)
    assert len(str(error)) < 700


async def test_a_server_that_is_not_there_is_an_upstream_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    client = ChatClient()
    config = AgentConfig(base_url=f"http://127.0.0.1:{port}/v1", model="m", api_key="k")
    with pytest.raises(UpstreamError, match=rf"no reply from 'http://127\.0\.0\.1:{port}/v1.*server running"):
        await client.complete(config, MESSAGES)
    await client.close()


async def test_a_connection_cut_in_the_middle_of_a_reply_is_an_upstream_error() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        await writer.drain()
        writer.close()

    client = ChatClient()
    async with await asyncio.start_server(cut, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        config = AgentConfig(base_url=f"http://127.0.0.1:{port}/v1", model="m", api_key="k")
        with pytest.raises(UpstreamError, match="no reply"):
            await client.complete(config, MESSAGES)
    await client.close()


async def test_calls_in_a_row_share_one_connection(server: Any) -> None:
    client = ChatClient()
    for _ in range(20):
        await client.complete(server.config(), MESSAGES)
    await client.close()
    assert len(server.connections) == 1


async def test_no_number_of_calls_at_once_waits_for_another(server: Any) -> None:
    client = ChatClient()
    server.gate.clear()
    async with asyncio.TaskGroup() as group:
        for _ in range(150):
            group.create_task(client.complete(server.config(), MESSAGES))
        async with asyncio.timeout(20):
            for _ in range(150):
                await server.arrived.get()
        server.gate.set()
    await client.close()
    assert len(server.requests) == 150


async def test_cancelling_a_call_ends_its_request_at_the_server(server: Any) -> None:
    client = ChatClient()
    server.gate.clear()
    call = asyncio.create_task(client.complete(server.config(), MESSAGES))
    async with asyncio.timeout(5):
        await server.arrived.get()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.dropped.get()
    await client.close()


async def test_closing_twice_or_unused_is_harmless_and_a_closed_client_opens_again(server: Any) -> None:
    client = ChatClient()
    await client.close()
    for _ in range(2):
        await client.complete(server.config(), MESSAGES)
        await client.close()
        await client.close()
    assert len(server.connections) == 2


def test_each_event_loop_has_its_own_connections_and_ended_loops_are_forgotten() -> None:
    client = ChatClient()
    config = AgentConfig(base_url="http://127.0.0.1:9/v1", model="m", api_key="k")

    async def once(*, close: bool) -> None:
        with pytest.raises(UpstreamError):
            await client.complete(config, MESSAGES)
        if close:
            await client.close()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(once(close=False))
        asyncio.run(once(close=True))
        gc.collect()
    assert any("Unclosed client session" in str(each.message) for each in caught)
