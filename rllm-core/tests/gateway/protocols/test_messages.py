"""The official Anthropic client, and the bare wire, against the gateway and the toy model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import aiohttp
import anthropic
import numpy as np
import pytest
from anthropic.types import Message as AnthropicMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from rllm.errors import BackendError, ContextOverflow, RequestError, UpstreamError
from rllm.gateway import SessionSpec
from rllm.gateway.canonical import start
from rllm.gateway.protocols.messages import MessagesAdapter
from rllm.gateway.protocols.messages_blocks import blocks_of
from rllm.gateway.session import Session
from rllm.gateway.wire import Incoming
from rllm.types import Exactness, FinishReason, JsonDict, WireProtocol

ADD = {
    "name": "add",
    "description": "adds",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
CALLS = (
    "<think>\nadd them\n</think>\n\nlet me — é ✓.\n\n<tool_call>\n"
    '{"name": "add", "arguments": { "a" :  1}}\n</tool_call>\n'
    '<tool_call>{"name": "add", "arguments": {"a": 2, "b": [1.5, "é"]}}</tool_call>'
)
Client = Callable[[Session], anthropic.AsyncAnthropic]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """An official client for a session; closed at the end."""
    made: list[anthropic.AsyncAnthropic] = []

    def connecting(session: Session) -> anthropic.AsyncAnthropic:
        key = session.agent_config().api_key
        made.append(anthropic.AsyncAnthropic(base_url=session.url, api_key=key, max_retries=0))
        return made[-1]

    yield connecting
    for each in made:
        await each.close()


async def ask(client: anthropic.AsyncAnthropic, *, stream: bool, **rest: Any) -> AnthropicMessage:
    rest = {"model": "claude-x", "max_tokens": 300, **rest}
    if not stream:
        return await client.messages.create(**rest)
    async with client.messages.stream(**rest) as events:
        return await events.get_final_message()


def parse(**body: Any) -> Any:
    return MessagesAdapter().parse(Incoming({"max_tokens": 9, **body}, {}))


def key_of(messages: list[JsonDict]) -> bytes:
    history = start(None)
    for message in messages:
        history.add(message)
    return history.key()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_reaches_the_client_and_the_record_equals_what_was_sampled(serve, client, stream: bool) -> None:
    async with serve("<think>\nhm\n</think>\n\nhello — é") as rig:
        session = rig.gateway.open_session()
        reply = await ask(
            client(session), stream=stream, messages=[{"role": "user", "content": "hi"}], system="be kind"
        )
        trace = await session.close()
    thinking, text = reply.content
    assert thinking.type == "thinking"
    assert (thinking.thinking, bool(thinking.signature), text.type, text.text) == ("hm", True, "text", "hello — é")
    [call] = trace.calls
    sample = rig.sampler.samples[0]
    assert np.array_equal(call.response_ids, sample.ids)
    assert np.array_equal(call.logprobs, sample.logprobs)
    assert reply.id == call.response_id
    assert reply.id.startswith("msg_")
    assert (reply.stop_reason, reply.stop_sequence) == ("end_turn", None)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (call.added_ids.size, sample.ids.size)
    assert rig.toy.text(rig.sampler.prompts[0]).startswith("<|im_start|>system\nbe kind<|im_end|>")


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_are_called_and_the_turn_that_comes_back_is_continued_exactly(serve, client, stream: bool) -> None:
    async with serve([CALLS, "3"]) as rig:
        session = rig.gateway.open_session()
        model = client(session)
        messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
        reply = await ask(model, stream=stream, messages=messages, tools=[ADD])
        kinds = [block.type for block in reply.content]
        assert kinds == ["thinking", "text", "tool_use", "tool_use"]
        assert reply.stop_reason == "tool_use"
        assert [block.input for block in reply.content[2:]] == [{"a": 1}, {"a": 2, "b": [1.5, "é"]}]
        messages[0]["content"][0]["cache_control"] = {"type": "ephemeral"}
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "ok"}]}
            for block in reply.content[2:]
        ]
        messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]
        last = await ask(model, stream=stream, messages=messages, tools=[ADD])
        trace = await session.close()
    assert last.content[0].text == "3"
    assert [call.exactness for call in trace.calls] == [Exactness.EXACT, Exactness.EXACT]
    first, second = trace.calls
    whole = np.concatenate([rig.sampler.prompts[0], rig.sampler.samples[0].ids, second.added_ids])
    assert np.array_equal(rig.sampler.prompts[1], whole)
    assert first.finish_reason is FinishReason.TOOL_CALLS
    assert [message["role"] for message in second.new_messages] == ["tool", "tool"]


async def test_what_the_stream_says_is_the_whole_reply_once_and_its_blocks_do_not_overlap(serve, client) -> None:
    async with serve(CALLS) as rig:
        session = rig.gateway.open_session()
        events = []
        async for event in await client(session).messages.create(
            model="m", max_tokens=300, stream=True, tools=[ADD], messages=[{"role": "user", "content": "go"}]
        ):
            events.append(event)
        whole = await ask(client(session), stream=False, tools=[ADD], messages=[{"role": "user", "content": "go!"}])
    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    open_block, said = None, {}
    for event in events:
        if event.type == "content_block_start":
            assert open_block is None
            open_block = event.index
            said[open_block] = ""
        elif event.type == "content_block_delta":
            assert event.index == open_block
            delta = event.delta
            said[open_block] += {
                "thinking_delta": lambda d: d.thinking,
                "text_delta": lambda d: d.text,
                "input_json_delta": lambda d: d.partial_json,
                "signature_delta": lambda d: "",
            }[delta.type](delta)
        elif event.type == "content_block_stop":
            assert event.index == open_block
            open_block = None
    assert list(said) == [0, 1, 2, 3]
    thinking, text, *calls = whole.content
    assert (said[0], said[1]) == (thinking.thinking, text.text)
    assert [json.loads(said[2]), json.loads(said[3])] == [call.input for call in calls]
    assert kinds.count("content_block_delta") > 10


async def test_counting_and_listing_speak_the_protocol_and_record_nothing(serve, client) -> None:
    async with serve("ok") as rig:
        session = rig.gateway.open_session()
        model = client(session)
        counted = await model.messages.count_tokens(
            model="m", messages=[{"role": "user", "content": "hi"}], tools=[ADD]
        )
        listed = [each async for each in await model.models.list()]
        reply = await ask(model, stream=False, messages=[{"role": "user", "content": "hi"}], tools=[ADD])
        one = await model.models.retrieve("toy")
        trace = await session.close()
    assert counted.input_tokens == reply.usage.input_tokens
    assert [each.id for each in listed] == ["toy"]
    assert one.display_name == "toy"
    assert len(trace.calls) == 1


@pytest.mark.parametrize(
    ("error", "kind", "status", "says"),
    [
        (ContextOverflow("x", prompt_tokens=9, limit_tokens=5), anthropic.BadRequestError, 400, "prompt is too long: 9 tokens > 5 maximum"),  # noqa: E501
        (ContextOverflow("9 do not fit"), anthropic.BadRequestError, 400, "prompt is too long (9 do not fit)"),
        (BackendError("broken"), anthropic.InternalServerError, 500, "broken"),
        (UpstreamError("slow down", status=429, retry_after="1"), anthropic.RateLimitError, 429, "slow down"),
        (UpstreamError("no", status=529, body='{"error": 1}', protocol=WireProtocol.CHAT), anthropic.APIStatusError, 529, "no"),  # noqa: E501
    ],
)  # fmt: skip
async def test_errors_are_those_that_clients_of_the_protocol_know(
    serve, client, monkeypatch, error: Exception, kind: type[Exception], status: int, says: str
) -> None:
    async with serve("ok") as rig:

        async def fail(*_: Any, **__: Any) -> Any:
            raise error

        monkeypatch.setattr(rig.sampler, "sample", fail)
        session = rig.gateway.open_session()
        for stream in (False, True):
            with pytest.raises(kind) as caught:
                await ask(client(session), stream=stream, messages=[{"role": "user", "content": "hi"}])
            assert caught.value.status_code == status
            assert says in caught.value.message
            assert caught.value.body["type"] == "error"
        trace = await session.close()
    assert (trace.calls, len(trace.errors)) == ([], 2)


async def test_a_wrong_key_a_budget_and_a_missing_limit_are_told_in_the_protocols_shape(serve, client) -> None:
    async with serve("ok") as rig:
        session = rig.gateway.open_session(SessionSpec(max_calls=0))
        model = client(session)
        hi = [{"role": "user", "content": "hi"}]
        with pytest.raises(anthropic.PermissionDeniedError, match="this session may make 0 calls"):
            await ask(model, stream=False, messages=hi)
        with pytest.raises(anthropic.AuthenticationError):
            await ask(model.with_options(api_key="wrong"), stream=False, messages=hi)
        url, key = f"{session.url}/v1/messages", session.agent_config().api_key
        async with aiohttp.ClientSession() as http:
            async with http.post(url, json={"messages": hi}, headers={"x-api-key": key}) as response:
                body = await response.json()
                assert (response.status, body["error"]["message"]) == (400, "max_tokens: field required")
            async with http.post(
                f"{session.url}/v1/v1/messages", json={"messages": hi}, headers={"Authorization": f"Bearer {key}"}
            ) as response:
                assert response.status == 400


async def test_the_stop_string_that_ended_a_reply_is_named(serve, client) -> None:
    async with serve("one STOP two") as rig:
        session = rig.gateway.open_session()
        for stream in (False, True):
            reply = await ask(
                client(session), stream=stream, stop_sequences=["STOP"], messages=[{"role": "user", "content": "hi"}]
            )
            assert (reply.stop_reason, reply.stop_sequence) == ("stop_sequence", "STOP")
            assert reply.content[0].text == "one "


def test_every_spelling_of_a_conversation_is_the_same_conversation() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "3"}
    plain = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "text", "text": "I add."}, use]},
        {"role": "user", "content": [result, {"type": "text", "text": "and?"}]},
    ]
    cached = {"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    split = [
        {"role": "user", "content": [cached]},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "I add."}]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{**result, "content": [{"type": "text", "text": "3"}], "is_error": False}]},
        {"role": "user", "content": "and?"},
    ]
    one, other = parse(messages=plain).messages, parse(messages=split).messages
    assert key_of(one) == key_of(other)
    assert [message["role"] for message in one] == ["user", "assistant", "tool", "user"]
    assert other[1]["thinking_blocks"] == [thought]
    changed = [*plain[:2], {"role": "user", "content": [{**result, "content": "4"}]}]
    assert key_of(parse(messages=changed).messages) != key_of(one)


def test_what_only_claude_or_its_servers_can_do_is_left_to_the_upstream() -> None:
    hi = [{"role": "user", "content": "hi"}]
    assert parse(messages=hi, tools=[{"type": "web_search_20250305", "name": "web_search"}]).tools is None
    assert parse(messages=hi, tools=[{"type": "bash_20250124", "name": "bash"}]).unsupported == (
        "tool 'bash_20250124'",
    )
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    asked = parse(messages=hi, output_config={"format": schema, "effort": "high"}, thinking={"type": "adaptive"})
    assert asked.unsupported == ("output format 'json_schema'",)
    assert asked.reasoning_effort == "high"
    assert parse(messages=[*hi, {"role": "assistant", "content": "{"}]).unsupported == (
        "a reply that the request begins",
    )
    media = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    [seen] = parse(messages=[{"role": "user", "content": [{"type": "image", "source": media}]}]).messages
    assert seen["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]


TEXTS = st.text(max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=3).map(json.dumps) | st.sampled_from(
    ["", "{", "[1]", "NaN", '{"a": NaN}']
)


@settings(deadline=None)
@given(TEXTS, TEXTS, st.lists(st.tuples(TEXTS.filter(bool), ARGUMENTS), max_size=3))
def test_a_reply_that_comes_back_is_the_reply_that_was_recorded(reasoning: str, text: str, calls: list[Any]) -> None:
    message: JsonDict = {"role": "assistant", "content": text}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for at, (name, arguments) in enumerate(calls)
        ]
    sent = json.loads(json.dumps(blocks_of(message)))
    if not sent:
        return
    user = {"role": "user", "content": "go"}
    back = parse(messages=[user, {"role": "assistant", "content": sent}]).messages
    assert key_of(back) == key_of([user, message])


BLOCK = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["text", "image", "document", "tool_use", "tool_result", "thinking", "x"]) | VALUES,
        "text": VALUES,
        "source": st.dictionaries(st.sampled_from(["type", "data", "url", "media_type"]), VALUES) | VALUES,
        "id": VALUES,
        "name": VALUES,
        "input": VALUES,
        "content": VALUES,
        "thinking": VALUES,
    },
)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={"role": st.sampled_from(["user", "assistant", "system"]) | VALUES, "content": st.lists(BLOCK) | VALUES},
)
OPTIONS = ("system", "tools", "tool_choice", "thinking", "output_config", "max_tokens", "stop_sequences", "stream")
BODY = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE, max_size=3) | VALUES}, optional=dict.fromkeys(OPTIONS, VALUES)
)


@settings(deadline=None)
@given(BODY)
def test_whatever_is_sent_is_understood_or_refused(body: JsonDict) -> None:
    with suppress(RequestError):
        assert MessagesAdapter().parse(Incoming(body, {})).messages
