"""Providers over HTTP, played by a stub: what passes through, what is captured, what is retried."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import numpy as np
import openai
import pytest
from aiohttp import web
from gateway_toy import until

from rllm.errors import GatewayError
from rllm.gateway import Gateway, MessageUpstream, SessionSpec
from rllm.gateway.providers.http import endpoint
from rllm.types import Exactness, FinishReason, Termination

USER = [{"role": "user", "content": "hi"}]
KEY = "sk-test-123"
Answer = Callable[[web.BaseRequest, int], Awaitable[web.StreamResponse]]


class Stub:
    """Answers the n-th request with `answer(request, n)`."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.cancelled = 0


@asynccontextmanager
async def provider(answer: Answer, **options: Any) -> AsyncIterator[Stub]:
    stub: Stub

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert request.path == "/v1/chat/completions"
        stub.bodies.append(json.loads(await request.read()))
        stub.headers.append(dict(request.headers))
        try:
            return await answer(request, len(stub.bodies))
        except asyncio.CancelledError:
            stub.cancelled += 1
            raise

    server = web.Server(handle, handler_cancellation=True)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    options.setdefault("api_key", KEY)
    async with Gateway(MessageUpstream(f"http://127.0.0.1:{port}", "gpt-x", **options)) as gateway:
        stub = Stub(gateway)
        yield stub
    listening.close()
    await server.shutdown(1)
    await listening.wait_closed()


def completion(text: str = "hello", **rest: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {
        "id": "same",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-x-2026",
        "choices": [choice],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "extra": 1},
        **rest,
    }


def always(body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    async def answer(request: web.BaseRequest, n: int) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return answer


def streaming(*events: Any, cut: bool = False, pause_s: float = 0.0, pieces: int = 0) -> Answer:
    """Sends each event; `cut` breaks the connection at the end; `pieces` cuts the bytes at every so many."""

    async def answer(request: web.BaseRequest, n: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        data = [
            f"data: {event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)}\n\n"
            for event in events
        ]
        parts = [each.encode() for each in data]
        if pieces:
            whole = b"".join(parts)
            parts = [whole[at : at + pieces] for at in range(0, len(whole), pieces)]
        for part in parts:
            await response.write(part)
            await asyncio.sleep(pause_s)
        if cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **rest: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish, **rest.pop("choice", {})}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "g", "choices": choices, **rest}


async def ask(client: Any, **options: Any) -> Any:
    return await client.chat.completions.create(model="m", **{"messages": USER, **options})


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("http://h", "http://h/v1/chat/completions"),
        ("http://h/", "http://h/v1/chat/completions"),
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1//", "http://h/v1/chat/completions"),
        ("https://openrouter.ai/api", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://api.z.ai/api/paas/v4/", "https://api.z.ai/api/paas/v4/chat/completions"),
        ("https://g.com/v1beta/openai/", "https://g.com/v1beta/openai/chat/completions"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
    ],
)
def test_a_base_url_may_or_may_not_name_its_version(base: str, path: str) -> None:
    assert str(endpoint(base)) == path


@pytest.mark.parametrize("base", ["", "h:1/v1", "ftp://h", "localhost:8000"])
def test_a_base_url_that_is_none_is_refused(base: str) -> None:
    with pytest.raises(GatewayError, match="base URL"):
        MessageUpstream(base, "m", None)


async def test_a_reply_passes_through_and_is_recorded_without_tokens(connect) -> None:
    async with provider(always(completion(citations=["x"]))) as stub:
        session = stub.gateway.open_session(SessionSpec(sampling={"temperature": 0.0, "max_tokens": 9, "top_k": 0}))
        client = connect(session.agent_config())
        first = await ask(client, temperature=1.0, extra_body={"max_completion_tokens": 50, "vendor_field": True})
        second = await ask(client, messages=[*USER, {"role": "assistant", "content": "hello"}, *USER])
        trace = await session.close()
    assert first.choices[0].message.content == "hello"
    assert first.citations == ["x"]
    assert len({first.id, second.id, "same"}) == 3
    sent = stub.bodies[0]
    assert (sent["model"], sent["temperature"], sent["max_completion_tokens"]) == ("gpt-x", 0.0, 9)
    assert sent["vendor_field"] is True
    assert "max_tokens" not in sent
    assert "top_k" not in sent
    assert stub.headers[0]["Authorization"] == f"Bearer {KEY}"
    one, two = trace.calls
    assert (one.response_id, one.exactness, one.trainable) == (first.id, Exactness.INEXACT, False)
    assert (one.usage.prompt_tokens, one.usage.completion_tokens) == (5, 2)
    assert (two.parent_id, len(two.new_messages)) == (one.id, 1)
    assert trace.ledger[Exactness.INEXACT] == 2


async def test_token_ids_that_the_server_returns_are_captured(connect) -> None:
    def answer_ids(prompt: list[int], ids: list[int]) -> dict[str, Any]:
        body = completion(prompt_token_ids=prompt, weight_version=3)
        body["choices"][0] |= {
            "token_ids": ids,
            "logprobs": {"content": [{"token": "t", "logprob": -0.5, "top_logprobs": []} for _ in ids]},
        }
        return body

    async def answer(request: web.BaseRequest, n: int) -> web.StreamResponse:
        return web.json_response([answer_ids([1, 2], [3, 4]), answer_ids([1, 2, 3, 4, 5], [6, 7])][n - 1])

    async with provider(answer, return_token_ids=True) as stub:
        session = stub.gateway.open_session()
        client = connect(session.agent_config())
        reply = await ask(client, logprobs=False)
        await ask(client, messages=[*USER, {"role": "assistant", "content": "hello"}, *USER])
        trace = await session.close()
    assert stub.bodies[0]["logprobs"] is True
    assert stub.bodies[0]["return_token_ids"] is True
    assert "token_ids" not in reply.choices[0].model_extra
    assert reply.choices[0].logprobs is None
    one, two = trace.calls
    assert [call.exactness for call in trace.calls] == [Exactness.EXACT] * 2
    assert all(call.trainable for call in trace.calls)
    assert (two.parent_id, two.added_ids.tolist(), two.response_ids.tolist()) == (one.id, [5], [6, 7])
    assert two.weight_versions.tolist() == [3, 3]


async def test_ids_that_are_not_all_there_make_the_call_inexact(connect) -> None:
    no_prompt = completion()
    no_prompt["choices"][0]["token_ids"] = [1, 2]
    short = completion(prompt_token_ids=[1])
    short["choices"][0]["token_ids"] = [1]

    async def answer(request: web.BaseRequest, n: int) -> web.StreamResponse:
        return web.json_response([no_prompt, short][n - 1])

    async with provider(answer) as stub:
        session = stub.gateway.open_session()
        client = connect(session.agent_config())
        await ask(client)
        await ask(client)
        trace = await session.close()
    assert [call.exactness for call in trace.calls] == [Exactness.INEXACT] * 2
    assert not any(call.response_ids.size for call in trace.calls)


@pytest.mark.parametrize("pieces", [0, 1, 7])
async def test_a_stream_passes_through_and_is_put_together(connect, pieces: int) -> None:
    events = [
        chunk({"role": "assistant", "content": ""}, prompt_token_ids=[1, 2]),
        chunk({"reasoning_content": "hm"}, choice={"token_ids": [11]}),
        chunk({"content": "😀 a"}, choice={"token_ids": [12, 13]}),
        chunk({"tool_calls": [{"index": 0, "id": "c0", "function": {"name": "f", "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 1, "id": "c1", "function": {"name": "g", "arguments": '{"b"'}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1}'}}]}, choice={"token_ids": []}),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": ": 2}"}}]}),
        chunk({}, "tool_calls"),
        chunk(usage={"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}),
        "[DONE]",
    ]
    async with provider(streaming(*events, pieces=pieces)) as stub:
        session = stub.gateway.open_session()
        content, arguments, usages = "", {0: "", 1: ""}, []
        async for piece in await ask(connect(session.agent_config()), stream=True):
            usages.append(piece.usage)
            assert "token_ids" not in (piece.choices[0].model_extra or {})
            delta = piece.choices[0].delta
            content += delta.content or ""
            for call in delta.tool_calls or ():
                arguments[call.index] += call.function.arguments or ""
        trace = await session.close()
    assert stub.bodies[0]["stream_options"] == {"include_usage": True}
    assert usages == [None] * 8
    assert (content, arguments) == ("😀 a", {0: '{"a": 1}', 1: '{"b": 2}'})
    (call,) = trace.calls
    assert call.reply["content"] == "😀 a"
    assert call.reply["reasoning_content"] == "hm"
    assert [each["function"] for each in call.reply["tool_calls"]] == [
        {"name": "f", "arguments": '{"a": 1}'},
        {"name": "g", "arguments": '{"b": 2}'},
    ]
    assert call.finish_reason is FinishReason.TOOL_CALLS
    assert call.response_ids.tolist() == [11, 12, 13]
    assert call.added_ids.tolist() == [1, 2]
    assert call.usage.completion_tokens == 3


async def test_streamed_ids_that_do_not_add_up_are_not_kept(connect) -> None:
    events = [
        chunk({"content": "x"}, "stop", choice={"token_ids": [1] * 7}, prompt_token_ids=[1]),
        chunk(usage={"prompt_tokens": 1, "completion_tokens": 12}),
        "[DONE]",
    ]
    async with provider(streaming(*events)) as stub:
        session = stub.gateway.open_session()
        pieces = [piece async for piece in await ask(connect(session.agent_config()), stream=True)]
        trace = await session.close()
    assert len(pieces) == 1
    assert (trace.calls[0].exactness, trace.calls[0].response_ids.size) == (Exactness.INEXACT, 0)


@pytest.mark.parametrize("status", [400, 401, 404, 422, 500, 529])
async def test_an_error_passes_through_and_is_no_call(connect, status: int, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    error = {"error": {"message": f"no, {KEY} is wrong", "type": "t", "code": "c"}}
    async with provider(always(error, status, {"Retry-After": "77"})) as stub:
        session = stub.gateway.open_session()
        with pytest.raises(openai.APIStatusError) as caught:
            await ask(connect(session.agent_config()))
        trace = await session.close()
    assert caught.value.status_code == status
    assert caught.value.body == {"message": "no, *** is wrong", "type": "t", "code": "c"}
    assert caught.value.response.headers["Retry-After"] == "77"
    assert not trace.calls
    (recorded,) = trace.errors
    assert (recorded.status, recorded.is_upstream) == (status, status in (401, 500, 529))
    assert KEY not in repr(trace) + repr(stub.gateway.upstream)
    assert not [record for record in caplog.records if record.name.startswith("rllm") and KEY in record.getMessage()]
    assert len(stub.bodies) == 1


async def test_a_context_overflow_is_told_as_such_and_recorded(connect) -> None:
    body = {"error": {"message": "This model's maximum context length is 10 tokens.", "code": "x"}}
    async with provider(always(body, 400)) as stub:
        session = stub.gateway.open_session()
        with pytest.raises(openai.BadRequestError) as caught:
            await ask(connect(session.agent_config()))
        assert caught.value.code == "context_length_exceeded"
        assert (await session.close()).termination is Termination.CONTEXT_LENGTH


@pytest.mark.parametrize("status", [429, 503])
async def test_a_short_retry_after_is_waited_for(connect, status: int) -> None:
    async def answer(request: web.BaseRequest, n: int) -> web.StreamResponse:
        if n == 1:
            return web.json_response({}, status=status, headers={"Retry-After": "1"})
        return web.json_response(completion())

    async with provider(answer) as stub:
        session = stub.gateway.open_session()
        started = time.monotonic()
        await ask(connect(session.agent_config()))
        assert time.monotonic() - started >= 1
        trace = await session.close()
    assert (len(stub.bodies), len(trace.calls), trace.errors) == (2, 1, [])


async def test_a_429_that_never_ends_is_passed_on_after_a_few_attempts(connect) -> None:
    async with provider(always({"error": {"message": "slow"}}, 429, {"Retry-After": "0"})) as stub:
        session = stub.gateway.open_session()
        with pytest.raises(openai.RateLimitError):
            await ask(connect(session.agent_config()))
        assert len(stub.bodies) == 4
        assert len((await session.close()).errors) == 1


async def test_a_connection_that_breaks_before_the_first_byte_is_tried_again(connect) -> None:
    async def answer(request: web.BaseRequest, n: int) -> web.StreamResponse:
        if n < 3:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(completion())

    async with provider(answer) as stub:
        session = stub.gateway.open_session()
        await ask(connect(session.agent_config()))
        assert len((await session.close()).calls) == 1
    assert len(stub.bodies) == 3


async def test_a_provider_that_is_not_there_is_a_502(connect, unused_port: int) -> None:
    async with Gateway(MessageUpstream(f"http://127.0.0.1:{unused_port}", "m", None)) as gateway:
        session = gateway.open_session()
        with pytest.raises(openai.InternalServerError) as caught:
            await ask(connect(session.agent_config()))
        assert caught.value.status_code == 502
        assert (await session.close()).errors[0].is_upstream


@pytest.fixture
async def unused_port() -> int:
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


@pytest.mark.parametrize(
    "answer",
    [
        streaming(chunk({"content": "a"}), cut=True),
        streaming(chunk({"content": "a"})),
        streaming(chunk({"content": "a"}), "{not json"),
        streaming(chunk({"content": "a"}), {"error": {"message": "overloaded"}}),
        streaming(chunk({"content": "a"}), {"choices": 3}),
    ],
)
async def test_a_stream_that_breaks_is_an_error_after_what_was_said(connect, answer: Answer) -> None:
    async with provider(answer) as stub:
        session = stub.gateway.open_session()
        said: list[str] = []

        async def listen() -> None:
            async for piece in await ask(connect(session.agent_config()), stream=True):
                said.append(piece.choices[0].delta.content or "")

        with pytest.raises(openai.APIError):
            await listen()
        trace = await session.close()
    assert said == ["a"]
    assert not trace.calls
    assert [error.is_upstream for error in trace.errors] == [True]
    assert len(stub.bodies) == 1


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"choices": [{"index": "x"}]}', b'{"choices": 1}'])
async def test_garbage_is_a_502(connect, body: bytes) -> None:
    async def answer(request: web.BaseRequest, n: int) -> web.StreamResponse:
        return web.Response(body=body)

    async with provider(answer) as stub:
        session = stub.gateway.open_session()
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError) as caught:
                await ask(connect(session.agent_config()), stream=stream)
            assert caught.value.status_code == 502
        assert not (await session.close()).calls


async def test_a_silent_provider_is_a_504(connect) -> None:
    async def answer(request: web.BaseRequest, n: int) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError

    async with provider(answer, timeout_s=0.2) as stub:
        with pytest.raises(openai.InternalServerError) as caught:
            await ask(connect(stub.gateway.open_session().agent_config()))
        assert caught.value.status_code == 504


async def test_a_client_that_leaves_ends_the_providers_work(connect) -> None:
    async with provider(streaming(*[chunk({"content": "a"})] * 100, pause_s=0.05)) as stub:
        config = stub.gateway.open_session().agent_config()
        async with aiohttp.ClientSession() as http:
            response = await http.post(
                f"{config.base_url}/chat/completions",
                json={"messages": USER, "stream": True},
                headers={"Authorization": f"Bearer {config.api_key}"},
            )
            await response.content.readany()
            response.close()
        await until(lambda: stub.cancelled)


async def test_several_choices_are_several_calls(connect) -> None:
    body = completion()
    body["choices"] = [
        {"index": at, "message": {"role": "assistant", "content": f"c{at}"}, "finish_reason": "stop"} for at in range(2)
    ]
    async with provider(always(body)) as stub:
        session = stub.gateway.open_session()
        await ask(connect(session.agent_config()), n=2)
        trace = await session.close()
    assert [call.reply["content"] for call in trace.calls] == ["c0", "c1"]
    assert np.isfinite(trace.calls[0].duration_s)
