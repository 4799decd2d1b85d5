"""The official OpenAI client against the gateway and the toy model."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import numpy as np
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm.gateway import SessionSpec
from rllm.types import Exactness, FinishReason

USER = [{"role": "user", "content": "hi"}]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    }
]
CALLS = (
    'let me<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
    '<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>'
)


async def collect(stream: Any) -> tuple[str, str, list[Any], str | None, Any]:
    """Content, reasoning, tool calls, finish reason and usage of a stream."""
    content, reasoning, calls, finish, usage = "", "", {}, None, None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            finish = choice.finish_reason or finish
            for piece in choice.delta.tool_calls or ():
                call = calls.setdefault(piece.index, {"id": piece.id, "name": "", "arguments": ""})
                call["name"] += piece.function.name or ""
                call["arguments"] += piece.function.arguments or ""
    return content, reasoning, [calls[at] for at in sorted(calls)], finish, usage


async def test_a_reply_reaches_the_client_and_the_record_equals_what_was_sampled(serve, connect) -> None:
    async with serve("hello") as rig:
        session = rig.gateway.open_session()
        reply = await connect(session.agent_config()).chat.completions.create(model="any", messages=USER)
        trace = await session.close()
    assert reply.choices[0].message.content == "hello"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.model == "toy"
    (call,), (sample,), (prompt,) = trace.calls, rig.sampler.samples, rig.sampler.prompts
    assert call.response_id == reply.id
    assert np.array_equal(call.added_ids, prompt)
    for got, sampled in [
        (call.response_ids, sample.ids),
        (call.logprobs, sample.logprobs),
        (call.weight_versions, sample.versions),
    ]:
        assert np.array_equal(got, sampled)
        assert got.dtype == sampled.dtype
    assert call.trainable
    assert call.exactness is Exactness.EXACT
    assert reply.usage.prompt_tokens == prompt.size
    assert reply.usage.completion_tokens == sample.ids.size
    assert call.model_validate_json(call.model_dump_json()) == call


def test_the_synchronous_client_works_from_a_thread(serve) -> None:
    async def run() -> str:
        async with serve("hello") as rig:
            config = rig.gateway.open_session().agent_config()
            client = openai.OpenAI(base_url=config.base_url, api_key=config.api_key)

            def ask() -> str:
                with client:
                    stream = client.chat.completions.create(model="m", messages=USER, stream=True)
                    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
                    whole = client.chat.completions.create(model="m", messages=USER)
                    return f"{streamed} {whole.choices[0].message.content}"

            return await asyncio.to_thread(ask)

    assert asyncio.run(run()) == "hello hello"


@pytest.mark.parametrize("stream", [False, True])
async def test_parallel_tool_calls_come_back_parsed(serve, connect, stream: bool) -> None:
    async with serve(CALLS) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        if stream:
            got = await client.chat.completions.create(model="m", messages=USER, tools=TOOLS, stream=True)
            content, _, calls, finish, _ = await collect(got)
        else:
            reply = await client.chat.completions.create(model="m", messages=USER, tools=TOOLS)
            content, finish = reply.choices[0].message.content, reply.choices[0].finish_reason
            calls = [
                {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
                for call in reply.choices[0].message.tool_calls
            ]
        trace = await session.close()
    assert content == "let me"
    assert finish == "tool_calls"
    assert [(call["name"], call["arguments"]) for call in calls] == [("add", '{"a": 1}'), ("add", '{"a": 2}')]
    assert len({call["id"] for call in calls}) == 2
    assert trace.calls[0].finish_reason is FinishReason.TOOL_CALLS
    assert trace.calls[0].reply["tool_calls"][1]["id"] == calls[1]["id"]
    assert "tools" not in rig.toy.text(rig.sampler.prompts[0])
    assert '"add"' in rig.toy.text(rig.sampler.prompts[0])


async def test_without_tools_or_with_tool_choice_none_markup_is_text(serve, connect) -> None:
    async with serve(CALLS) as rig:
        client = connect(rig.gateway.open_session().agent_config())
        for options in ({}, {"tools": TOOLS, "tool_choice": "none"}):
            reply = await client.chat.completions.create(model="m", messages=USER, **options)
            assert reply.choices[0].message.content == CALLS
            assert reply.choices[0].message.tool_calls is None


async def test_a_tool_loop_extends_the_sampled_tokens(serve, connect) -> None:
    async with serve([CALLS, "done"]) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        first = (await client.chat.completions.create(model="m", messages=USER, tools=TOOLS)).choices[0].message
        history = [*USER, first.model_dump(exclude_none=True)]
        history += [{"role": "tool", "tool_call_id": call.id, "content": "3"} for call in first.tool_calls]
        await client.chat.completions.create(model="m", messages=history, tools=TOOLS)
        trace = await session.close()
    one, two = trace.calls
    assert two.parent_id == one.id
    assert two.exactness is Exactness.EXACT
    before = np.concatenate([rig.sampler.prompts[0], rig.sampler.samples[0].ids])
    assert np.array_equal(rig.sampler.prompts[1][: before.size], before)
    assert rig.toy.text(two.added_ids) == (
        "\n<|im_start|>tool\n3<|im_end|>\n<|im_start|>tool\n3<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [message["role"] for message in two.new_messages] == ["tool", "tool"]


@pytest.mark.parametrize("stream", [False, True])
async def test_every_choice_is_a_branch_of_its_own(serve, connect, toy, stream: bool) -> None:
    words = iter(["one", "two", "three"])
    async with serve(lambda prompt, params: toy.ids(next(words) + "<|im_end|>")) as rig:
        session = rig.gateway.open_session(SessionSpec(seed=3))
        client = connect(session.agent_config())
        got = await client.chat.completions.create(model="m", messages=USER, n=3, stream=stream)
        if stream:
            said: dict[int, str] = {}
            async for chunk in got:
                for choice in chunk.choices:
                    said[choice.index] = said.get(choice.index, "") + (choice.delta.content or "")
            contents = [said[at] for at in range(3)]
        else:
            contents = [choice.message.content for choice in got.choices]
            assert got.usage.completion_tokens == sum(sample.ids.size for sample in rig.sampler.samples)
        trace = await session.close()
    assert contents == ["one", "two", "three"]
    assert [call.reply["content"] for call in trace.calls] == contents
    assert {call.parent_id for call in trace.calls} == {None}
    assert len({params.seed for params in rig.sampler.params}) == 3


async def test_log_probabilities_and_ids_are_shown_only_to_those_who_ask(serve, connect) -> None:
    async with serve("hi é") as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        plain = await client.chat.completions.create(model="m", messages=USER, logprobs=False)
        asked = await client.chat.completions.create(
            model="m", messages=USER, logprobs=True, extra_body={"return_token_ids": True}
        )
        trace = await session.close()
    assert plain.choices[0].logprobs is None
    assert "token_ids" not in plain.choices[0].model_extra
    sample = rig.sampler.samples[1]
    content = asked.choices[0].logprobs.content
    assert [entry.logprob for entry in content] == sample.logprobs.tolist()
    assert content[0].token == "h"
    assert asked.choices[0].token_ids == sample.ids.tolist()
    assert asked.prompt_token_ids == rig.sampler.prompts[1].tolist()
    assert all(call.logprobs.size == call.response_ids.size > 0 for call in trace.calls)


async def test_a_stream_may_carry_ids_log_probabilities_and_usage(serve, connect) -> None:
    async with serve("hello you") as rig:
        client = connect(rig.gateway.open_session().agent_config())
        stream = await client.chat.completions.create(
            model="m",
            messages=USER,
            stream=True,
            logprobs=True,
            stream_options={"include_usage": True},
            extra_body={"return_token_ids": True},
        )
        ids, logprobs, prompt, usage = [], [], None, None
        async for chunk in stream:
            usage = chunk.usage or usage
            prompt = (chunk.model_extra or {}).get("prompt_token_ids", prompt)
            for choice in chunk.choices:
                ids += (choice.model_extra or {}).get("token_ids") or []
                if choice.logprobs:
                    logprobs += [entry.logprob for entry in choice.logprobs.content]
    sample = rig.sampler.samples[0]
    assert ids == sample.ids.tolist()
    assert logprobs == sample.logprobs.tolist()
    assert prompt == rig.sampler.prompts[0].tolist()
    assert usage.completion_tokens == len(ids)


async def test_content_blocks_and_the_developer_role_are_understood(serve, connect) -> None:
    async with serve("ok") as rig:
        client = connect(rig.gateway.open_session().agent_config())
        messages = [
            {"role": "developer", "content": [{"type": "text", "text": "be"}, {"type": "text", "text": " kind"}]},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        ]
        await client.chat.completions.create(model="m", messages=messages, extra_body={"anything": {"else": 1}})
    assert rig.toy.text(rig.sampler.prompts[0]).startswith(
        "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhi"
    )


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "image_url"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}, "tool_calls[0]"),
        ({"messages": USER, "n": 0}, "n is 0"),
        ({"messages": USER, "temperature": "hot"}, "temperature"),
        ({"messages": USER, "temperature": -1}, "temperature"),
        ({"messages": USER, "max_completion_tokens": 0}, "max_completion_tokens"),
        ({"messages": USER, "stop": [""]}, "stop"),
        ({"messages": USER, "tools": "add"}, "tools"),
        ({"messages": USER, "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
async def test_a_malformed_request_is_a_400_that_names_the_fault(serve, connect, body, says) -> None:
    async with serve("ok") as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        with pytest.raises(openai.BadRequestError) as caught:
            await client.post("/chat/completions", body={"model": "m", **body}, cast_to=object)
        assert says in caught.value.body["message"]
        assert caught.value.body["type"] == "invalid_request_error"
        trace = await session.close()
    assert not trace.calls
    assert [error.is_upstream for error in trace.errors] == [False]


async def test_models_lists_the_one_model(serve, connect) -> None:
    async with serve("ok") as rig:
        client = connect(rig.gateway.open_session().agent_config())
        assert [model.id for model in (await client.models.list()).data] == ["toy"]


async def test_reasoning_is_told_apart_in_replies_and_streams(serve, connect) -> None:
    async with serve("<think>\nhmm < 3\n</think>\n\nfour") as rig:
        client = connect(rig.gateway.open_session().agent_config())
        reply = (await client.chat.completions.create(model="m", messages=USER)).choices[0].message
        stream = await client.chat.completions.create(model="m", messages=USER, stream=True)
        content, reasoning, _, _, _ = await collect(stream)
    assert (reply.content, reply.reasoning_content) == ("four", "hmm < 3")
    assert (content, reasoning) == ("four", "hmm < 3")


async def test_text_that_is_not_unicode_is_a_400(serve) -> None:
    async with serve("ok") as rig, aiohttp.ClientSession() as http:
        config = rig.gateway.open_session().agent_config()
        async with http.post(
            f"{config.base_url}/chat/completions",
            data=b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
            headers={"Authorization": f"Bearer {config.api_key}"},
        ) as response:
            assert response.status == 400
            assert "Unicode" in (await response.json())["error"]["message"]


async def test_no_json_whatever_is_more_than_a_400(serve) -> None:
    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )
    function = st.dictionaries(st.sampled_from(["name", "arguments", "x"]), json_values, max_size=3)
    calls = st.lists(st.fixed_dictionaries({}, optional={"function": function, "id": json_values}) | json_values)
    message = st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system", "developer"]) | json_values},
        optional={
            "content": st.text(max_size=5)
            | st.lists(st.fixed_dictionaries({"type": json_values, "text": json_values})),
            "tool_calls": calls,
            "reasoning_content": json_values,
            "name": json_values,
        },
    )
    names = ["temperature", "top_p", "top_k", "max_tokens", "stop", "seed", "n", "stream", "tools", "tool_choice",
             "stream_options", "logprobs", "response_format", "return_token_ids"]  # fmt: skip
    bodies = st.builds(
        lambda rest, messages: {**rest, "messages": messages},
        st.dictionaries(st.sampled_from(names), json_values, max_size=3),
        st.lists(message, max_size=3) | json_values,
    )
    examples: list[Any] = []
    given(st.lists(bodies, max_size=4))(lambda each: examples.extend(each))()
    async with serve("ok") as rig, aiohttp.ClientSession() as http:
        config = rig.gateway.open_session().agent_config()
        statuses: set[int] = set()
        for body in examples:
            async with http.post(
                f"{config.base_url}/chat/completions",
                json=body,
                headers={"Authorization": f"Bearer {config.api_key}"},
            ) as response:
                statuses.add(response.status)
                assert response.status in (200, 400), (body, await response.text())
                await response.read()
    assert statuses == {200, 400}
