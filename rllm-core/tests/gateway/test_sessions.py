"""Sessions: who may use one, for how much, and what is left of it."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import aiohttp
import openai
import pytest
from gateway_toy import ScriptedSampler, until
from hypothesis import given
from hypothesis import strategies as st

from rllm.errors import BackendError, GatewayError
from rllm.gateway import Gateway, GatewayConfig, SessionSpec, TokenUpstream
from rllm.gateway.routes import segment, split
from rllm.types import CallError, CapturedCall, FinishReason, Termination

USER = [{"role": "user", "content": "hi"}]
ODD_IDS = [
    "a/b",
    "math:12",
    "/v1/",
    "agents/x/v1",
    "x/agents/y/v1/chat",
    "é😀 \n",
    "%2F",
    "..",
    ".",
    "~",
    "~..",
    "a?b#c",
]


@pytest.mark.parametrize("id", ODD_IDS)
@pytest.mark.parametrize("role", [None, "judge", "a/b v1"])
async def test_a_session_id_and_a_role_may_hold_any_characters(serve, connect, id: str, role: str | None) -> None:
    async with serve("ok") as rig:
        session = rig.gateway.open_session(SessionSpec(id=id))
        config = session.agent_config()
        client = connect(config if role is None else config.for_agent(role))
        await client.chat.completions.create(model="m", messages=USER)
        trace = await session.close()
    assert trace.session_id == id
    assert [call.role for call in trace.calls] == [role or "default"]


@given(id=st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20))
def test_every_id_survives_its_url(id: str) -> None:
    route = split(f"/sessions/{segment(id)}/v1/chat/completions?beta=true")
    assert route is not None
    assert route == (id, "default", "v1/chat/completions")


async def test_a_missing_or_wrong_token_is_refused(serve, connect) -> None:
    async with serve("ok") as rig:
        session = rig.gateway.open_session()
        other = rig.gateway.open_session().agent_config()
        config = session.agent_config()
        url = f"{config.base_url}/chat/completions"
        async with aiohttp.ClientSession() as http:
            for headers in ({}, {"Authorization": f"Bearer {other.api_key}"}, {"Authorization": "Basic x"}):
                async with http.post(url, json={"messages": USER}, headers=headers) as response:
                    assert response.status == 401
                    assert (await response.json())["error"]["code"] == "invalid_api_key"
            async with http.post(url, json={"messages": USER}, headers={"x-api-key": config.api_key}) as response:
                assert response.status == 200
        trace = await session.close()
    assert len(trace.calls) == 1
    assert not trace.errors


async def test_a_token_is_in_no_log_line_and_no_repr(serve, connect, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve("ok") as rig:
        session = rig.gateway.open_session()
        config = session.agent_config()
        await connect(config).chat.completions.create(model="m", messages=USER)
        shown = f"{session!r} {config!r} {await session.close()!r}"
    gateway_logs = [record for record in caplog.records if record.name.startswith(("rllm", "aiohttp"))]
    assert config.api_key not in shown
    assert all(config.api_key not in record.getMessage() for record in gateway_logs)


async def test_unknown_paths_methods_and_sessions_are_refused_in_the_protocols_shape(serve) -> None:
    async with serve("ok") as rig, aiohttp.ClientSession() as http:
        config = rig.gateway.open_session().agent_config()
        auth = {"Authorization": f"Bearer {config.api_key}"}
        for method, url, status in [
            ("POST", f"{config.base_url}/nothing", 404),
            ("GET", f"{config.base_url}/chat/completions", 405),
            ("POST", f"{rig.gateway.url}/sessions/none/v1/chat/completions", 404),
            ("GET", f"{rig.gateway.url}/", 404),
        ]:
            async with http.request(method, url, headers=auth) as response:
                assert response.status == status
                assert (await response.json())["error"]["message"]


async def test_a_closed_session_answers_like_an_unknown_one(serve, connect) -> None:
    async with serve("ok") as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        await client.chat.completions.create(model="m", messages=USER)
        first, second = await session.close(), await session.close()
        assert first == second
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="m", messages=USER)
        rig.gateway.open_session(SessionSpec(id=session.id))
        with pytest.raises(GatewayError, match="open already"):
            rig.gateway.open_session(SessionSpec(id=session.id))


@pytest.mark.parametrize("stream", [False, True])
async def test_closing_cancels_what_is_in_flight(serve, connect, stream: bool) -> None:
    async with serve("a very long reply", pause_s=0.05) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())

        async def ask() -> None:
            got = await client.chat.completions.create(model="m", messages=USER, stream=stream)
            if stream:
                async for _ in got:
                    pass

        asking = asyncio.create_task(ask())
        await until(lambda: rig.sampler.running)
        await asyncio.sleep(0.1)
        trace = await session.close()
        with pytest.raises(openai.APIError):
            await asking
        assert rig.sampler.cancelled == 1
    assert not trace.calls
    assert [error.status for error in trace.errors] == [404]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_stops_the_sampler(serve, stream: bool) -> None:
    async with serve("a very long reply", pause_s=0.05) as rig:
        session = rig.gateway.open_session()
        config = session.agent_config()
        async with aiohttp.ClientSession() as http:
            asking = asyncio.create_task(
                http.post(
                    f"{config.base_url}/chat/completions",
                    json={"messages": USER, "stream": stream},
                    headers={"Authorization": f"Bearer {config.api_key}"},
                )
            )
            await until(lambda: rig.sampler.running)
            await asyncio.sleep(0.1)
            if stream:
                (await asking).close()
            else:
                asking.cancel()
        await until(lambda: session.errors and not rig.sampler.running)
        trace = await session.close()
    assert rig.sampler.cancelled == 1
    assert not trace.calls
    assert [error.code for error in trace.errors] == ["client_disconnected"]


async def test_budgets_end_in_an_error_and_a_recorded_reason(serve, connect) -> None:
    async with serve("four") as rig:
        for spec, allowed in [(SessionSpec(max_calls=2), 2), (SessionSpec(max_tokens=7), 2)]:
            session = rig.gateway.open_session(spec)
            client = connect(session.agent_config())
            for _ in range(allowed):
                await client.chat.completions.create(model="m", messages=USER)
            with pytest.raises(openai.PermissionDeniedError) as caught:
                await client.chat.completions.create(model="m", messages=USER)
            assert caught.value.code == "session_budget_exceeded"
            trace = await session.close()
            assert trace.termination is Termination.BUDGET
            assert len(trace.calls) == allowed
        assert trace.calls[-1].finish_reason is FinishReason.LENGTH


async def test_a_deadline_cuts_calls_in_flight_and_refuses_later_ones(serve, connect) -> None:
    async with serve("a very long reply", pause_s=0.05) as rig:
        session = rig.gateway.open_session(SessionSpec(deadline_s=0.2))
        client = connect(session.agent_config())
        for _ in range(2):
            with pytest.raises(openai.PermissionDeniedError) as caught:
                await client.chat.completions.create(model="m", messages=USER)
            assert caught.value.code == "session_deadline_exceeded"
        assert rig.sampler.cancelled == 1
        assert (await session.close()).termination is Termination.DEADLINE


async def test_a_prompt_that_does_not_fit_is_told_so_and_recorded(serve, connect) -> None:
    async with serve("ok", context_length=60) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        long = [{"role": "user", "content": "x" * 100}]
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="m", messages=long)
        assert caught.value.code == "context_length_exceeded"
        assert session.trace().termination is Termination.CONTEXT_LENGTH
        await client.chat.completions.create(model="m", messages=USER)
        assert (await session.close()).termination is None


@pytest.mark.parametrize("alias", ["max_tokens", "max_completion_tokens"])
async def test_session_parameters_override_the_client_under_every_alias(serve, connect, alias: str) -> None:
    enforced = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "max_tokens": 8, "stop": ["Z"], "seed": 5}
    async with serve("ok") as rig:
        session = rig.gateway.open_session(SessionSpec(sampling=enforced))
        client = connect(session.agent_config())
        for asked, given in [(100, 8), (4, 4)]:
            await client.chat.completions.create(
                model="m",
                messages=USER,
                temperature=1.5,
                top_p=0.1,
                stop=["q"],
                seed=1,
                extra_body={"top_k": 50, alias: asked},
            )
            params = rig.sampler.params[-1]
            assert (params.temperature, params.top_p, params.top_k) == (0.5, 0.9, 3)
            assert (params.max_tokens, params.stop, params.seed) == (given, ("Z",), 5)
        trace = await session.close()
    assert trace.calls[1].sampling == {**enforced, "max_tokens": 4}


async def test_a_client_decides_what_the_session_leaves_open(serve, connect) -> None:
    async with serve("ok", context_length=500) as rig:
        client = connect(rig.gateway.open_session(SessionSpec(default_max_tokens=9)).agent_config())
        free = connect(rig.gateway.open_session().agent_config())
        await client.chat.completions.create(model="m", messages=USER, temperature=0.3, seed=4)
        await free.chat.completions.create(model="m", messages=USER)
    first, second = rig.sampler.params
    assert (first.max_tokens, first.temperature, first.seed) == (9, 0.3, 4)
    assert (second.max_tokens, second.seed) == (500 - rig.sampler.prompts[1].size, None)


@pytest.mark.parametrize("sampling", [{"max_completion_tokens": 3}, {"temperature": -1}, {"stop": [3]}])
async def test_parameters_that_cannot_be_enforced_are_refused_at_once(serve, sampling: dict[str, Any]) -> None:
    async with serve("ok") as rig:
        with pytest.raises(GatewayError, match=next(iter(sampling))):
            rig.gateway.open_session(SessionSpec(sampling=sampling))


async def test_a_broken_sampler_is_a_500_and_never_a_call(serve, connect) -> None:
    def script(prompt: Any, params: Any) -> list[int]:
        raise ValueError("out of memory")

    async with serve(script) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError, match="out of memory"):
                await client.chat.completions.create(model="m", messages=USER, stream=stream)
        trace = await session.close()
    assert not trace.calls
    assert [(error.code, error.is_upstream) for error in trace.errors] == [(BackendError.__name__, True)] * 2


async def test_a_long_body_is_refused(serve) -> None:
    async with (
        serve("ok", config=GatewayConfig(limit_request_bytes=1000)) as rig,
        aiohttp.ClientSession() as http,
    ):
        config = rig.gateway.open_session().agent_config()
        auth = {"Authorization": f"Bearer {config.api_key}"}

        async def pieces() -> Any:
            for _ in range(20):
                yield b"x" * 100

        for data in (b"x" * 1001, pieces()):
            async with http.post(f"{config.base_url}/chat/completions", data=data, headers=auth) as response:
                assert response.status == 413
        for data in (b"{", b"[]", b"\xff"):
            async with http.post(f"{config.base_url}/chat/completions", data=data, headers=auth) as response:
                assert response.status == 400


async def test_a_recorder_is_told_of_every_call_and_error(serve, connect, model_dir) -> None:
    from rllm.gateway import load_renderer

    class Remembers:
        def __init__(self) -> None:
            self.calls: list[tuple[str, CapturedCall]] = []
            self.errors: list[tuple[str, CallError]] = []

        def record(self, session_id: str, call: CapturedCall) -> None:
            self.calls.append((session_id, call))

        def record_error(self, session_id: str, error: CallError) -> None:
            self.errors.append((session_id, error))

        async def settled(self) -> None:
            assert self.calls

    sampler, recorder = ScriptedSampler(lambda prompt, params: [1]), Remembers()
    upstream = TokenUpstream(sampler, load_renderer(model_dir, "toy"), "toy")
    async with Gateway(upstream, recorder=recorder) as gateway:
        session = gateway.open_session(SessionSpec(id="s"))
        client = connect(session.agent_config())
        await client.chat.completions.create(model="m", messages=USER)
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model="m", messages=[])
        trace = await session.close()
    assert recorder.calls == [("s", trace.calls[0])]
    assert recorder.errors == [("s", trace.errors[0])]


async def test_a_port_in_use_is_one_clear_line(serve, model_dir) -> None:
    async with serve("ok") as rig:
        port = int(rig.gateway.url.rpartition(":")[2])
        with pytest.raises(GatewayError, match=f"127.0.0.1:{port}: the port is in use") as caught:
            async with Gateway(rig.gateway.upstream, GatewayConfig(port=port)):
                pass
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org"])
async def test_other_machines_are_let_in_only_when_told(serve, host: str) -> None:
    async with serve("ok") as rig:
        with pytest.raises(GatewayError, match="allow_remote"):
            await Gateway(rig.gateway.upstream, GatewayConfig(host=host)).__aenter__()
        async with Gateway(rig.gateway.upstream, GatewayConfig(host="0.0.0.0", allow_remote=True)) as gateway:
            assert gateway.url.startswith("http://127.0.0.1:")


async def test_leaving_the_gateway_ends_calls_in_flight(serve, connect) -> None:
    async with serve("a very long reply", pause_s=0.05) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        asking = asyncio.create_task(client.chat.completions.create(model="m", messages=USER))
        await until(lambda: rig.sampler.running)
    with pytest.raises(openai.APIError):
        await asking
    assert rig.sampler.cancelled == 1


async def test_a_thousand_sessions_at_once_leave_nothing_behind(serve) -> None:
    async with serve("hello") as rig:
        connector = aiohttp.TCPConnector(limit=50)
        async with aiohttp.ClientSession(connector=connector) as http:

            async def one(at: int) -> None:
                session = rig.gateway.open_session()
                config = session.agent_config()
                history: list[dict[str, Any]] = [{"role": "user", "content": f"question {at}"}]
                for _ in range(2):
                    async with http.post(
                        f"{config.base_url}/chat/completions",
                        json={"messages": history},
                        headers={"Authorization": f"Bearer {config.api_key}"},
                    ) as response:
                        history.append((await response.json())["choices"][0]["message"])
                    history.append({"role": "user", "content": "more"})
                trace = await session.close()
                assert [call.parent_id for call in trace.calls] == [None, trace.calls[0].id]
                assert trace.calls[0].new_messages[0]["content"] == f"question {at}"

            await asyncio.gather(*(one(at) for at in range(1000)))
        rig.sampler.samples.clear()
        gc.collect()
        assert not rig.gateway._sessions
        assert not [each for each in gc.get_objects() if type(each) is CapturedCall]
