"""The official google-genai client, and the bare wire, against the gateway and the toy model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import numpy as np
import pytest
from gateway_toy import Toy
from google import genai
from google.genai import errors, types
from hypothesis import given
from hypothesis import strategies as st

from rllm.errors import BackendError, ContextOverflow
from rllm.gateway import SessionSpec
from rllm.gateway.session import Session
from rllm.types import Exactness, FinishReason

CALLS = (
    "<think>\nadd them\n</think>\nlet me — é<tool_call>\n"
    '{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>\n'
    '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 2}}</tool_call>'
)

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
"""google-genai subclasses aiohttp's session."""

Client = Callable[[Session], genai.Client]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """An official client for a session; closed at the end."""
    made: list[genai.Client] = []

    def connecting(session: Session) -> genai.Client:
        options = types.HttpOptions(base_url=session.url)
        made.append(genai.Client(api_key=session.agent_config().api_key, http_options=options))
        return made[-1]

    yield connecting
    for each in made:
        await each.aio.aclose()
        each.close()


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


async def collect(stream: Any) -> tuple[str, str, list[Any], Any]:
    """Thoughts, text, calls and the last chunk of a stream."""
    thoughts, text, calls, last = "", "", [], None
    async for chunk in stream:
        last = chunk
        for part in chunk.candidates[0].content.parts:
            if part.function_call:
                calls.append(part.function_call)
            elif part.thought:
                thoughts += part.text
            else:
                text += part.text
    return thoughts, text, calls, last


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_reaches_the_client_and_the_record_equals_what_was_sampled(serve, client, stream: bool) -> None:
    async with serve("<think>hm</think>hello — é") as rig:
        session = rig.gateway.open_session()
        models = client(session).aio.models
        if stream:
            got = await models.generate_content_stream(model="gemini-2.5-pro", contents="hi")
            thoughts, text, _, reply = await collect(got)
        else:
            reply = await models.generate_content(model="gemini-2.5-pro", contents="hi")
            thoughts, text = reply.candidates[0].content.parts[0].text, reply.text
        trace = await session.close()
    assert (thoughts, text) == ("hm", "hello — é")
    assert reply.candidates[0].finish_reason is types.FinishReason.STOP
    assert reply.model_version == "toy"
    (call,), (sample,), (prompt,) = trace.calls, rig.sampler.samples, rig.sampler.prompts
    assert call.response_id == reply.response_id
    assert np.array_equal(call.added_ids, prompt)
    assert np.array_equal(call.response_ids, sample.ids)
    assert np.array_equal(call.logprobs, sample.logprobs)
    assert call.trainable
    usage = reply.usage_metadata
    assert (usage.prompt_token_count, usage.candidates_token_count) == (prompt.size, sample.ids.size)
    assert usage.total_token_count == prompt.size + sample.ids.size


async def test_automatic_function_calling_extends_the_sampled_tokens(serve, client) -> None:
    async with serve([CALLS, "done"]) as rig:
        session = rig.gateway.open_session()
        chat = client(session).aio.chats.create(model="m", config=types.GenerateContentConfig(tools=[add]))
        reply = await chat.send_message("hi")
        trace = await session.close()
    assert reply.text == "done"
    one, two = trace.calls
    assert one.finish_reason is FinishReason.TOOL_CALLS
    assert one.tools[0]["function"]["parameters"]["properties"]["a"] == {"type": "integer"}
    assert (two.parent_id, two.exactness) == (one.id, Exactness.EXACT)
    before = np.concatenate([rig.sampler.prompts[0], rig.sampler.samples[0].ids])
    assert np.array_equal(rig.sampler.prompts[1][: before.size], before)
    assert rig.toy.text(two.added_ids) == (
        "\n<|im_start|>tool\n3<|im_end|>\n<|im_start|>tool\n4<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = [call["id"] for call in one.reply["tool_calls"]]
    assert [message["tool_call_id"] for message in two.new_messages] == ids


async def test_a_streamed_chat_sends_every_chunk_back_and_is_still_one_exact_path(serve, client) -> None:
    async with serve([CALLS, "all right", "good"]) as rig:
        session = rig.gateway.open_session()
        chat = client(session).aio.chats.create(model="m", config=types.GenerateContentConfig(tools=[add]))
        _, text, _, _ = await collect(await chat.send_message_stream("hi"))
        assert len([each for each in chat.get_history() if each.role == "model"]) > 3
        again = await chat.send_message("and now?")
        trace = await session.close()
    assert text.endswith("all right")
    assert again.text == "good"
    assert [call.exactness for call in trace.calls] == [Exactness.EXACT] * 3
    assert [call.parent_id for call in trace.calls] == [None, trace.calls[0].id, trace.calls[1].id]


async def test_function_calls_are_streamed_whole_once_and_signed_after_a_thought(serve, client) -> None:
    tool = types.Tool(function_declarations=[{"name": "add", "parameters": {"type": "OBJECT", "properties": {}}}])
    config = types.GenerateContentConfig(
        tools=[tool], automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True)
    )
    async with serve(CALLS) as rig:
        session = rig.gateway.open_session()
        parts = []
        async for chunk in await client(session).aio.models.generate_content_stream(
            model="m", contents="hi", config=config
        ):
            parts += chunk.candidates[0].content.parts
        recorded = session.calls[0].reply["tool_calls"]
    calls = [part for part in parts if part.function_call]
    assert [part.function_call.args for part in calls] == [{"a": 1, "b": 2}, {"a": 2, "b": 2}]
    assert [part.function_call.id for part in calls] == [call["id"] for call in recorded]
    assert calls[0].thought_signature
    assert "".join(part.text for part in parts if part.thought) == "add them"
    assert "".join(part.text for part in parts if part.text and not part.thought) == "let me — é"


def test_the_synchronous_client_generates_streams_counts_and_lists(serve) -> None:
    async def run() -> Any:
        async with serve("hello") as rig:
            session = rig.gateway.open_session()
            options = types.HttpOptions(base_url=session.url)

            def ask() -> Any:
                with genai.Client(api_key=session.agent_config().api_key, http_options=options) as each:
                    whole = each.models.generate_content(model="m", contents="hi").text
                    pieces = [chunk.text for chunk in each.models.generate_content_stream(model="m", contents="hi")]
                    count = each.models.count_tokens(model="m", contents="hi").total_tokens
                    names = [model.name for model in each.models.list()]
                    return whole, "".join(pieces), count, names, each.models.get(model="other/name").display_name

            got = await asyncio.to_thread(ask)
            return got, rig.sampler.prompts[0].size, len(session.calls)

    got, prompt, calls = asyncio.run(run())
    assert got == ("hello", "hello", prompt, ["models/toy"], "toy")
    assert calls == 2


async def test_parameters_reach_the_sampler(serve, client) -> None:
    config = types.GenerateContentConfig(
        system_instruction="be brief",
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        max_output_tokens=3,
        stop_sequences=["zz"],
        seed=11,
        candidate_count=2,
        response_logprobs=True,
    )
    async with serve("hello there") as rig:
        session = rig.gateway.open_session()
        reply = await client(session).aio.models.generate_content(model="m", contents="hi", config=config)
    assert rig.toy.text(rig.sampler.prompts[0]).startswith("<|im_start|>system\nbe brief<|im_end|>")
    params = rig.sampler.params[0]
    assert (params.temperature, params.top_p, params.top_k) == (0.5, 0.9, 40)
    assert (params.max_tokens, params.stop, params.seed) == (3, ("zz",), 11)
    assert [each.index for each in reply.candidates] == [0, 1]
    for candidate, sample in zip(reply.candidates, rig.sampler.samples, strict=True):
        assert candidate.finish_reason is types.FinishReason.MAX_TOKENS
        chosen = candidate.logprobs_result.chosen_candidates
        assert [each.token_id for each in chosen] == sample.ids.tolist()
        assert [each.log_probability for each in chosen] == sample.logprobs.tolist()
        assert "".join(each.token for each in chosen) == candidate.content.parts[0].text


async def test_errors_come_in_googles_words(serve, client, toy: Toy) -> None:
    def script(prompt: Any, params: Any) -> list[int]:
        text = toy.text(prompt)
        if "long" in text:
            raise ContextOverflow("too long", prompt_tokens=5000, limit_tokens=4096)
        raise BackendError("the device is on fire")

    async with serve(script) as rig:
        session = rig.gateway.open_session()
        ask = client(session).aio.models.generate_content
        with pytest.raises(errors.ClientError) as caught:
            await ask(model="m", contents="long")
        assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")
        assert caught.value.message == (
            "The input token count (5000) exceeds the maximum number of tokens allowed (4096)."
        )
        with pytest.raises(errors.ServerError) as failed:
            await ask(model="m", contents="hi")
        assert (failed.value.code, failed.value.status) == (500, "INTERNAL")
        with pytest.raises(errors.ClientError, match="cannot be enforced") as refused:
            await ask(model="m", contents="hi", config={"response_mime_type": "application/json"})
        assert refused.value.status == "INVALID_ARGUMENT"
        options = types.HttpOptions(base_url=session.url)
        async with genai.Client(api_key="wrong", http_options=options).aio as stranger:
            with pytest.raises(errors.ClientError) as locked:
                await stranger.models.generate_content(model="m", contents="hi")
        assert (locked.value.code, locked.value.status) == (401, "UNAUTHENTICATED")
        spent = rig.gateway.open_session(SessionSpec(max_calls=0))
        with pytest.raises(errors.ClientError) as denied:
            await client(spent).aio.models.generate_content(model="m", contents="hi")
        assert (denied.value.code, denied.value.status) == (403, "PERMISSION_DENIED")


async def test_a_stream_that_breaks_says_so(serve, client) -> None:
    async with serve("hello hello hello", pause_s=0.1) as rig:
        session = rig.gateway.open_session(SessionSpec(deadline_s=0.2))
        with pytest.raises(errors.ClientError) as caught:
            async for _ in await client(session).aio.models.generate_content_stream(model="m", contents="hi"):
                pass
    assert "deadline" in str(caught.value.message)
    assert not session.calls


class Wire:
    """The session's address without a client in between."""

    def __init__(self, http: aiohttp.ClientSession, session: Session) -> None:
        self.http = http
        self.session = session
        self.key = session.agent_config().api_key

    async def post(self, path: str, body: Any) -> tuple[int, str, str]:
        headers = {"x-goog-api-key": self.key}
        async with self.http.post(f"{self.session.url}/{path}", data=json.dumps(body), headers=headers) as response:
            return response.status, response.content_type, await response.text()


ASK = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


@pytest.mark.parametrize(
    "path",
    ["v1beta/models/m", "v1/models/m", "v1/v1beta/models/m", "v1beta/models/a%2Fb", "v1beta/models/a/b:7b"],
)
async def test_every_spelling_of_the_path_is_served(serve, path: str) -> None:
    async with serve("hello") as rig, aiohttp.ClientSession() as http:
        wire = Wire(http, rig.gateway.open_session())
        status, kind, text = await wire.post(f"{path}:generateContent", ASK)
        assert (status, kind) == (200, "application/json")
        assert json.loads(text)["candidates"][0]["content"] == {"role": "model", "parts": [{"text": "hello"}]}
        status, kind, text = await wire.post(f"{path}:streamGenerateContent?alt=sse", ASK)
        assert (status, kind) == (200, "text/event-stream")
        assert text.startswith('data: {"candidates"')
        assert text.endswith("}\r\n\r\n")
        status, _, text = await wire.post(f"{path}:countTokens", {"generateContentRequest": {**ASK, "model": "m"}})
        assert json.loads(text) == {"totalTokens": rig.sampler.prompts[0].size}


async def test_a_stream_without_alt_sse_is_a_json_array(serve) -> None:
    async with serve("hello") as rig, aiohttp.ClientSession() as http:
        wire = Wire(http, rig.gateway.open_session())
        _, kind, text = await wire.post("v1beta/models/m:streamGenerateContent", ASK)
    chunks = json.loads(text)
    assert kind == "application/json"
    assert "".join(chunk["candidates"][0]["content"]["parts"][0]["text"] for chunk in chunks) == "hello"
    assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"
    assert chunks[-1]["usageMetadata"]["promptTokenCount"] == rig.sampler.prompts[0].size


async def test_the_key_may_be_in_the_query_and_the_models_are_googles(serve) -> None:
    async with serve("hello") as rig, aiohttp.ClientSession() as http:
        session = rig.gateway.open_session()
        key = session.agent_config().api_key
        async with http.get(f"{session.url}/v1beta/models?key={key}") as response:
            assert [model["name"] for model in (await response.json())["models"]] == ["models/toy"]
        async with http.get(f"{session.url}/v1beta/models/x?key={key}") as response:
            assert (await response.json())["name"] == "models/toy"
        async with http.get(f"{session.url}/v1/models/x", headers={"Authorization": f"Bearer {key}"}) as response:
            assert (await response.json())["id"] == "toy"


async def test_thoughts_are_left_out_where_the_client_refuses_them(serve) -> None:
    body = {**ASK, "generation_config": {"thinking_config": {"include_thoughts": False}}}
    async with serve("<think>hm</think>hello") as rig, aiohttp.ClientSession() as http:
        session = rig.gateway.open_session()
        wire = Wire(http, session)
        for action in ("generateContent", "streamGenerateContent?alt=sse"):
            _, _, text = await wire.post(f"v1beta/models/m:{action}", body)
            assert "hm" not in text
    assert session.calls[0].reply["reasoning_content"] == "hm"


async def test_any_json_body_is_answered_or_refused_and_never_breaks(serve) -> None:
    names = ["text", "thought", "functionCall", "function_response", "inlineData", "fileData", "executableCode", "role"]
    names += [
        "name",
        "id",
        "args",
        "response",
        "parts",
        "mimeType",
        "data",
        "mode",
        "functionDeclarations",
        "parameters",
    ]
    names += ["type", "properties", "topK", "stop_sequences", "candidateCount", "thinkingConfig", "thinkingBudget"]
    scalars = st.none() | st.booleans() | st.integers(-2, 3) | st.floats(allow_nan=False) | st.sampled_from(names)
    values = st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner, max_size=4)
    )
    part = st.dictionaries(st.sampled_from(names[:8]), values, max_size=2) | st.just({"text": "hi"})
    content = st.fixed_dictionaries(
        {"parts": st.lists(part, max_size=3) | values},
        optional={"role": st.sampled_from(["user", "model", "function"])},
    )
    bodies = st.fixed_dictionaries(
        {"contents": st.lists(content, max_size=3) | values},
        optional={
            "tools": values,
            "toolConfig": values,
            "system_instruction": content | values,
            "generationConfig": st.dictionaries(st.sampled_from(names), values, max_size=3) | values,
        },
    )
    examples: list[Any] = [{"contents": ASK["contents"], "tools": nested(400)}]
    given(st.lists(bodies, max_size=4))(lambda each: examples.extend(each))()
    async with serve("ok") as rig, aiohttp.ClientSession() as http:
        wire = Wire(http, rig.gateway.open_session())
        statuses: set[int] = set()
        for at, body in enumerate(examples):
            action = ("generateContent", "streamGenerateContent?alt=sse", "countTokens")[at % 3]
            status, _, text = await wire.post(f"v1beta/models/m:{action}", body)
            statuses.add(status)
            assert status in (200, 400), (body, text)
            if status == 400:
                assert json.loads(text)["error"]["status"] == "INVALID_ARGUMENT"
    assert statuses == {200, 400}


def nested(depth: int) -> Any:
    """A tool whose schema is far too deep."""
    schema: Any = {"type": "STRING"}
    for _ in range(depth):
        schema = {"type": "ARRAY", "items": schema}
    return [{"functionDeclarations": [{"name": "deep", "parameters": schema}]}]
