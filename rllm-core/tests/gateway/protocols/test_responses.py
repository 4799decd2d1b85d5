"""The official OpenAI client's `responses` against the gateway and the toy model."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import aiohttp
import numpy as np
import openai
import pytest
from gateway_toy import until
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from rllm.gateway import SessionSpec
from rllm.types import Exactness, FinishReason

EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
ADD = {
    "type": "function",
    "name": "add",
    "description": "adds",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
PATCH = {
    "type": "custom",
    "name": "patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: LF"},
}
CREW = {
    "type": "namespace",
    "name": "crew",
    "description": "",
    "tools": [{"type": "function", "name": "hire", "parameters": {"type": "object", "properties": {}}}],
}
THINK = "<think>\nLet me think.\n</think>\n\n"
CALLS = (
    '<tool_call>\n{"name": "add", "arguments": { "a" :  1}}\n</tool_call>\n'
    '<tool_call>{"name": "patch", "arguments": {"input": "*** é \\"q\\"\\n"}}</tool_call>'
    '<tool_call>{"name": "crew__hire", "arguments": {}}</tool_call>'
)
TOOLS = [ADD, PATCH, CREW, {"type": "web_search"}]


async def drain(stream: Any) -> list[Any]:
    return [event async for event in stream]


async def post(url: str, key: str, body: Any, **headers: str) -> tuple[int, bytes]:
    headers["Authorization"] = f"Bearer {key}"
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as response:
        return response.status, await response.read()


def check_events(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Holds every event against the grammar of a stream; the response that it ends with."""
    for number, event in enumerate(events):
        EVENT.validate_python(event, strict=True)
        assert event["sequence_number"] == number
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] in ("response.completed", "response.incomplete")
    final = events[-1]["response"]
    Response.model_validate(final, strict=True)
    output: list[dict[str, Any]] = []
    item: dict[str, Any] | None = None
    text = ""
    for event in events[2:-1]:
        kind = event["type"]
        assert event["output_index"] == len(output)
        if kind == "response.output_item.added":
            assert item is None
            item, text = event["item"], ""
        elif kind == "response.output_item.done":
            assert item is not None
            assert event["item"]["id"] == item["id"]
            assert event["item"]["type"] == item["type"]
            assert text in _texts(event["item"])
            output.append(event["item"])
            item = None
        else:
            assert item is not None
            assert event["item_id"] == item["id"]
            if kind.endswith(".delta"):
                text += event["delta"]
            elif kind.endswith("part.done"):
                assert event["part"]["text"] == text
            elif kind.endswith(".done"):
                assert text == event.get("text", event.get("arguments", event.get("input")))
    assert item is None
    assert final["output"] == output
    assert {event["response"]["id"] for event in (events[0], events[1], events[-1])} == {final["id"]}
    return dict(final)


def _texts(item: dict[str, Any]) -> list[str]:
    return [item.get("arguments", ""), item.get("input", "")] + [
        part["text"] for name in ("content", "summary") for part in item.get(name) or ()
    ]


def parse_sse(data: bytes) -> list[dict[str, Any]]:
    events = []
    for block in data.decode().split("\n\n")[:-1]:
        name, _, rest = block.partition("\n")
        event = json.loads(rest.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


async def test_a_reply_reaches_the_client_and_the_record_equals_what_was_sampled(serve, connect) -> None:
    async with serve("hello") as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        reply = await client.responses.create(model="any", input="hi", instructions="be kind", metadata={"a": "b"})
        trace = await session.close()
    Response.model_validate(reply.to_dict(mode="python"), strict=True)
    assert reply.output_text == "hello"
    assert (reply.status, reply.model, reply.object, reply.error) == ("completed", "toy", "response", None)
    assert (reply.instructions, reply.metadata, reply.tools) == ("be kind", {"a": "b"}, [])
    (call,), (sample,), (prompt,) = trace.calls, rig.sampler.samples, rig.sampler.prompts
    assert call.response_id == reply.id
    assert np.array_equal(call.added_ids, prompt)
    assert np.array_equal(call.response_ids, sample.ids)
    assert np.array_equal(call.logprobs, sample.logprobs)
    assert call.exactness is Exactness.EXACT
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (prompt.size, sample.ids.size)
    assert rig.toy.text(prompt) == (
        "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("summary", [None, "auto"])
@pytest.mark.parametrize("text", ["hello", THINK + "naïve 😀", THINK + "so\n\n" + CALLS, CALLS, THINK, ""])
async def test_a_stream_says_what_the_whole_reply_says(serve, connect, text: str, summary: str | None) -> None:
    async with serve(text) as rig:
        session = rig.gateway.open_session()
        config = session.agent_config()
        asked = {"model": "m", "input": "hi", "tools": TOOLS, "reasoning": {"summary": summary}}
        asked["include"] = ["reasoning.encrypted_content"]
        whole = (await connect(config).responses.create(**asked)).to_dict(mode="python")
        status, data = await post(f"{config.base_url}/responses", config.api_key, {**asked, "stream": True})
        trace = await session.close()
    Response.model_validate(whole, strict=True)
    assert status == 200
    final = check_events(parse_sse(data))
    for each in (whole, final):
        for item in each["output"]:
            assert item.pop("id").split("_")[0] in ("rs", "msg", "fc", "ctc")
            assert item.pop("call_id", "call_").startswith("call_")
        for passing in ("id", "created_at", "completed_at"):
            each.pop(passing)
    assert final == whole
    one, two = trace.calls
    assert np.array_equal(one.response_ids, two.response_ids)
    assert [call.logprobs.size for call in trace.calls] == [call.response_ids.size for call in trace.calls]


async def test_the_helper_that_accumulates_a_stream_gets_the_whole_reply(serve, connect) -> None:
    async with serve(THINK + "so" + CALLS) as rig:
        client = connect(rig.gateway.open_session().agent_config())
        async with client.responses.stream(model="m", input="hi", tools=TOOLS) as stream:
            events = await drain(stream)
            final = await stream.get_final_response()
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    thought = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
    assert (text, thought) == ("so", "Let me think.")
    assert final.output_text == "so"
    reasoning, _, add, patch, hire = final.output
    assert (reasoning.content[0].text, reasoning.summary) == ("Let me think.", [])
    assert (add.type, add.name, json.loads(add.arguments)) == ("function_call", "add", {"a": 1})
    assert (patch.type, patch.name, patch.input) == ("custom_tool_call", "patch", '*** é "q"\n')
    assert (hire.type, hire.name, hire.namespace) == ("function_call", "hire", "crew")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_loop_extends_the_sampled_tokens(serve, connect, stream: bool) -> None:
    async with serve([THINK + "so" + CALLS, "done"]) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        history: list[Any] = [{"role": "user", "content": "hi"}]
        asked: dict[str, Any] = {"model": "m", "tools": TOOLS, "input": history}
        if stream:
            events = await drain(await client.responses.create(**asked, stream=True))
            first = events[-1].response
        else:
            first = await client.responses.create(**asked)
        history += [item.to_dict(mode="json") for item in first.output]
        for item in first.output:
            if item.type in ("function_call", "custom_tool_call"):
                history.append({"type": f"{item.type}_output", "call_id": item.call_id, "output": "3"})
        second = await client.responses.create(**asked)
        trace = await session.close()
    assert second.output_text == "done"
    one, two = trace.calls
    assert one.finish_reason is FinishReason.TOOL_CALLS
    assert (two.parent_id, two.exactness) == (one.id, Exactness.EXACT)
    before = np.concatenate([rig.sampler.prompts[0], rig.sampler.samples[0].ids])
    assert np.array_equal(rig.sampler.prompts[1][: before.size], before)
    assert [call["id"] for call in one.reply["tool_calls"]] == [
        item.call_id for item in first.output if item.type.endswith("_call")
    ]
    assert [message["role"] for message in two.new_messages] == ["tool"] * 3
    prompt = rig.toy.text(rig.sampler.prompts[0])
    assert '"crew__hire"' in prompt
    assert "must match this lark grammar:\\nstart: LF" in prompt
    assert "web_search" not in prompt


async def test_without_tools_or_with_tool_choice_none_markup_is_text(serve, connect) -> None:
    async with serve(CALLS) as rig:
        client = connect(rig.gateway.open_session().agent_config())
        for options in ({}, {"tools": TOOLS, "tool_choice": "none"}):
            reply = await client.responses.create(model="m", input="hi", **options)
            assert reply.output_text == CALLS


async def test_a_reply_that_is_cut_is_incomplete_and_says_why(serve, connect) -> None:
    async with serve("hello you there") as rig:
        client = connect(rig.gateway.open_session().agent_config())
        whole = await client.responses.create(model="m", input="hi", max_output_tokens=2)
        events = await drain(await client.responses.create(model="m", input="hi", max_output_tokens=2, stream=True))
    assert [event.type for event in events][-1] == "response.incomplete"
    for reply in (whole, events[-1].response):
        assert (reply.status, reply.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert reply.output[0].status == "incomplete"
        assert reply.output_text == "hello "
    assert [params.max_tokens for params in rig.sampler.params] == [2, 2]


async def test_log_probabilities_and_ids_are_shown_only_to_those_who_ask(serve, connect) -> None:
    async with serve("hi é") as rig:
        client = connect(rig.gateway.open_session().agent_config())
        plain = await client.responses.create(model="m", input="hi")
        asked = {"model": "m", "input": "hi", "include": ["message.output_text.logprobs"]}
        asked["extra_body"] = {"return_token_ids": True}
        whole = await client.responses.create(**asked)
        events = await drain(await client.responses.create(**asked, stream=True))
    assert not plain.output[0].content[0].logprobs
    assert "token_ids" not in plain.model_extra
    for reply, sample in zip((whole, events[-1].response), rig.sampler.samples[1:], strict=True):
        assert [entry.logprob for entry in reply.output[0].content[0].logprobs] == sample.logprobs.tolist()
        assert reply.token_ids == sample.ids.tolist()
        assert reply.prompt_token_ids == rig.sampler.prompts[1].tolist()
    (done,) = (event for event in events if event.type == "response.output_text.done")
    assert [entry.logprob for entry in done.logprobs] == rig.sampler.samples[2].logprobs.tolist()


async def test_parameters_reach_the_sampler(serve, connect) -> None:
    async with serve("ok") as rig:
        client = connect(rig.gateway.open_session().agent_config())
        await client.responses.create(model="m", input="hi", temperature=0.5, top_p=0.9, max_output_tokens=7)
    (params,) = rig.sampler.params
    assert (params.temperature, params.top_p, params.max_tokens) == (0.5, 0.9, 7)


async def test_input_tokens_are_counted_without_sampling(serve, connect) -> None:
    async with serve("ok") as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        asked = {"model": "m", "input": "hi", "instructions": "be kind", "tools": TOOLS}
        counted = await client.responses.input_tokens.count(**asked)
        assert not rig.sampler.prompts
        reply = await client.responses.create(**asked)
        trace = await session.close()
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == reply.usage.input_tokens
    assert len(trace.calls) == 1


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ({}, "invalid_request_error", "input is None"),
        ({"input": []}, "invalid_request_error", "input is empty"),
        ({"input": 3}, "invalid_request_error", "input is 3"),
        ({"input": ["x"]}, "invalid_request_error", "input[0]"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "invalid_request_error", "input[0].role is 'wizard'"),
        ({"input": [{"role": "user", "content": 3}]}, "invalid_request_error", "input[0].content"),
        ({"input": [{"role": "user", "content": [{}]}]}, "invalid_request_error", "input[0].content[0]"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "invalid_request_error", "input[0].call_id"),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, "invalid_request_error", "input[0].name"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "invalid_request_error", "input[0].output"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "unsupported_parameter", "'item_reference'"),
        ({"input": [{"type": "compaction_trigger"}]}, "unsupported_parameter", "'compaction_trigger'"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]},
         "unsupported_content", "image_url"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
         "unsupported_content", "file"),
        ({"input": "hi", "instructions": ["x"]}, "invalid_request_error", "instructions"),
        ({"input": "hi", "tools": "add"}, "invalid_request_error", "tools is 'add'"),
        ({"input": "hi", "tools": [{"type": "function"}]}, "invalid_request_error", "tools[0]"),
        ({"input": "hi", "max_output_tokens": 0}, "invalid_request_error", "max_output_tokens"),
        ({"input": "hi", "previous_response_id": "resp_1"}, "previous_response_not_found", "whole history"),
        ({"input": "hi", "conversation": "conv_1"}, "conversation_not_found", "whole history"),
        ({"input": "hi", "background": True}, "invalid_request_error", "background"),
        ({"input": "hi", "prompt": {"id": "p"}}, "unsupported_parameter", "prompt"),
        ({"input": "hi", "text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}},
         "unsupported_parameter", "json_schema"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
async def test_a_malformed_request_is_a_400_that_names_the_fault(
    serve, connect, body, code: str, says: str, stream: bool
) -> None:
    async with serve("ok") as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        with pytest.raises(openai.BadRequestError) as caught:
            await client.post("/responses", body={"model": "m", "stream": stream, **body}, cast_to=object)
        trace = await session.close()
    assert says in caught.value.body["message"]
    assert caught.value.body["code"] == code
    assert caught.value.body["type"] == "invalid_request_error"
    assert not trace.calls


async def test_a_prompt_that_is_too_long_has_the_code_that_clients_look_for(serve, connect) -> None:
    async with serve("ok", context_length=20) as rig:
        client = connect(rig.gateway.open_session().agent_config())
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as caught:
                await client.responses.create(model="m", input="x" * 50, stream=stream)
            assert caught.value.code == "context_length_exceeded"


async def test_a_stream_that_breaks_ends_with_response_failed(serve, connect) -> None:
    async with serve("a reply that takes its time", pause_s=0.02) as rig:
        session = rig.gateway.open_session(SessionSpec(deadline_s=0.2))
        stream = await connect(session.agent_config()).responses.create(model="m", input="hi", stream=True)
        events = await drain(stream)
    for before, after in pairwise(events):
        assert after.sequence_number == before.sequence_number + 1
    assert events[-1].type == "response.failed"
    assert events[-1].response.status == "failed"
    assert events[-1].response.error.message
    assert events[-1].response.id == events[0].response.id


async def test_a_retry_of_an_answered_request_gets_the_same_reply(serve, connect) -> None:
    async with serve(["one", "two"]) as rig:
        session = rig.gateway.open_session()
        config = session.agent_config()
        body = {"model": "m", "input": "hi"}
        url = f"{config.base_url}/responses"
        first = json.loads((await post(url, config.api_key, body))[1])
        await until(lambda: len(session.calls) == 1)
        retried = json.loads((await post(url, config.api_key, body, **{"x-stainless-retry-count": "1"}))[1])
        fresh = json.loads((await post(url, config.api_key, body))[1])
    assert retried["output"] == first["output"]
    assert retried["id"] == first["id"]
    assert fresh["output"][0]["content"][0]["text"] == "two"


async def test_no_json_whatever_is_more_than_a_400(serve) -> None:
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )
    names = st.sampled_from(["content", "summary", "arguments", "input", "name", "call_id", "output", "id", "action",
                             "namespace", "phase", "tools", "status", "encrypted_content"])  # fmt: skip
    part_kinds = st.sampled_from(["input_text", "output_text", "refusal", "input_image", "input_file", "summary_text"])
    parts = st.lists(
        st.fixed_dictionaries(
            {"type": part_kinds | values},
            optional={"text": st.text(max_size=5) | values, "image_url": values, "refusal": values},
        ),
        max_size=2,
    )
    kinds = ["message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "local_shell_call",
             "custom_tool_call_output", "shell_call_output", "item_reference", "additional_tools", None]  # fmt: skip
    item = st.builds(
        lambda head, rest: {**head, **rest},
        st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(kinds) | values,
                "role": st.sampled_from(["user", "assistant", "system", "developer"]) | values,
            },
        ),
        st.dictionaries(names, values | parts | st.text(max_size=5), max_size=4),
    )
    tool = st.fixed_dictionaries(
        {"type": st.sampled_from(["function", "custom", "namespace", "web_search"]) | values},
        optional={"name": st.text(max_size=3) | values, "tools": values, "format": values, "parameters": values},
    )
    fields = ["temperature", "max_output_tokens", "stream", "tool_choice", "reasoning", "include", "text", "store",
              "parallel_tool_calls", "metadata", "top_logprobs", "instructions", "return_token_ids"]  # fmt: skip
    bodies = st.builds(
        lambda rest, items, tools: {**rest, "input": items, "tools": tools},
        st.dictionaries(st.sampled_from(fields), values, max_size=3),
        st.text(max_size=3) | st.lists(item, max_size=3) | values,
        st.none() | st.lists(tool, max_size=2) | values,
    )
    examples: list[Any] = []
    given(st.lists(bodies, max_size=4))(lambda each: examples.extend(each))()
    statuses: set[int] = set()
    async with serve("ok") as rig, aiohttp.ClientSession() as http:
        config = rig.gateway.open_session().agent_config()
        for body in examples:
            headers = {"Authorization": f"Bearer {config.api_key}"}
            async with http.post(f"{config.base_url}/responses", json=body, headers=headers) as response:
                statuses.add(response.status)
                assert response.status in (200, 400), (body, await response.text())
                await response.read()
    assert statuses == {200, 400}
