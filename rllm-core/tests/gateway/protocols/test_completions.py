"""The official OpenAI client's legacy completions against the gateway and the toy model."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import numpy as np
import openai
import pytest
from gateway_toy import Toy
from hypothesis import given
from hypothesis import strategies as st

from rllm.types import Exactness

EXTRA = {"return_token_ids": True}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_text_is_continued_as_it_is_and_recorded_as_it_was_sampled(serve, connect, stream: bool) -> None:
    said = " there <think>e</think><tool_call>{}</tool_call>\n"
    async with serve(said) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        ask = {"model": "m", "prompt": "<|im_start|>oh hello", "max_tokens": 99, "logprobs": 1, "extra_body": EXTRA}
        if stream:
            text, ids, usage = "", [], None
            options = {"include_usage": True}
            async for chunk in await client.completions.create(stream=True, stream_options=options, **ask):
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    text += choice.text
                    ids += choice.token_ids
                    last = choice
        else:
            reply = await client.completions.create(**ask)
            [last], usage = reply.choices, reply.usage
            text, ids = last.text, last.token_ids
        trace = await session.close()
    (call,), (sample,), (prompt,) = trace.calls, rig.sampler.samples, rig.sampler.prompts
    assert prompt.tolist() == rig.toy.ids("<|im_start|>oh hello")
    assert (text, ids, last.finish_reason) == (said, sample.ids.tolist(), "stop")
    assert last.prompt_token_ids == prompt.tolist()
    assert last.logprobs.token_logprobs == sample.logprobs.tolist()
    assert "".join(last.logprobs.tokens) == said + "<|im_end|>"
    for token, offset in zip(last.logprobs.tokens, last.logprobs.text_offset, strict=True):
        assert (said + "<|im_end|>")[offset:].startswith(token)
    assert last.logprobs.top_logprobs[0] == {" ": -0.25}
    assert (usage.prompt_tokens, usage.completion_tokens) == (prompt.size, sample.ids.size)
    assert call.reply == {"role": "assistant", "content": said}
    assert np.array_equal(call.added_ids, prompt)
    assert np.array_equal(call.response_ids, sample.ids)
    assert np.array_equal(call.logprobs, sample.logprobs)
    assert np.array_equal(call.weight_versions, sample.versions)
    assert call.exactness is Exactness.EXACT
    assert call.trainable


async def test_ids_that_go_on_from_a_known_call_are_its_child(serve, connect) -> None:
    async with serve("hello") as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())

        async def ask(prompt: Any) -> list[int]:
            choice = (await client.completions.create(model="m", prompt=prompt, extra_body=EXTRA)).choices[0]
            return choice.prompt_token_ids + choice.token_ids

        start = rig.toy.ids("one")
        first = await ask(start)
        second = await ask([first + rig.toy.ids(" two")])
        await ask(second[:-1])
        await ask(start)
        await ask(first)
        chat = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], extra_body=EXTRA
        )
        await ask([*chat.prompt_token_ids, *chat.choices[0].token_ids, *rig.toy.ids("x")])
        trace = await session.close()
    one, two, cut, same, nothing, said, after = trace.calls
    assert [call.parent_id for call in trace.calls] == [None, one.id, one.id, None, same.id, None, said.id]
    assert two.added_ids.tolist() == rig.toy.ids(" two")
    assert cut.added_ids.tolist() == second[len(first) : -1]
    assert nothing.added_ids.size == 0
    assert same.added_ids.tolist() == start
    assert after.added_ids.tolist() == rig.toy.ids("x")
    assert {call.exactness for call in trace.calls} == {Exactness.EXACT}


async def test_stop_strings_the_limit_and_samples_are_honoured(serve, connect, toy: Toy) -> None:
    words = iter(["one. two", "three. four", "x" * 40, "a st", "b"])
    async with serve(lambda prompt, params: toy.ids(next(words) + "<|im_end|>")) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        reply = await client.completions.create(model="m", prompt="p", n=2, stop=[". "])
        assert [(choice.index, choice.text) for choice in reply.choices] == [(0, "one"), (1, "three")]
        cut = await client.completions.create(model="m", prompt=["p"])
        assert (cut.choices[0].text, cut.choices[0].finish_reason) == ("x" * 16, "length")
        pieces: dict[int, str] = {0: "", 1: ""}
        async for chunk in await client.completions.create(model="m", prompt="p", n=2, stop="stop", stream=True):
            for choice in chunk.choices:
                pieces[choice.index] += choice.text
        assert pieces == {0: "a st", 1: "b"}
    assert rig.sampler.params[0].stop == (". ",)
    assert len(session.calls) == 5


@given(st.data())
def test_a_streamed_text_is_a_beginning_of_the_whole_at_every_step(toy: Toy, data: st.DataObject) -> None:
    from rllm.gateway.text_prompts import TextReply, read_text

    class Plain:
        stop_ids = (toy.ids("<|im_end|>")[0],)

        def decode(self, ids: Any) -> str:
            return toy.text(list(ids))

    ids = toy.ids(data.draw(st.text("ab.é\U0001f600", max_size=12)) + "<|im_end|>")
    stop = tuple(data.draw(st.lists(st.text("ab.", min_size=1, max_size=3), max_size=2)))
    whole = read_text(np.array(ids, np.int32), Plain(), stop)["content"]
    reply, given_out = TextReply(Plain(), stop), ""
    while ids:
        size = data.draw(st.integers(1, 3))
        piece, ids = ids[:size], ids[size:]
        given_out += reply.feed(np.array(piece, np.int32))[1]
        assert whole.startswith(given_out)
    assert not stop or all(each not in given_out for each in stop)
    assert stop or given_out == whole


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"prompt": ["a", "b"]}, "holds 2 prompts"),
        ({"prompt": ""}, "prompt is ''"),
        ({"prompt": [True]}, "prompt is \\[True\\]"),
        ({"prompt": [10**12]}, "prompt is \\["),
        ({"prompt": [100_000]}, "id 100000"),
        ({"prompt": "a", "echo": True}, "echo is True"),
        ({"prompt": "a", "suffix": "b"}, "suffix is 'b'"),
        ({"prompt": "a", "best_of": 3}, "best_of is 3"),
        ({"prompt": "a", "n": 0}, "n is 0"),
        ({"prompt": "a", "logit_bias": {"1": 2}}, "logit_bias cannot be enforced"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens is 0"),
    ],
)
async def test_what_would_be_answered_wrongly_is_refused(serve, connect, body: Any, said: str) -> None:
    async with serve("hello") as rig:
        client = connect(rig.gateway.open_session().agent_config())
        with pytest.raises(openai.BadRequestError, match=said):
            await client.completions.create(model="m", **body)
        assert not rig.sampler.prompts


async def test_any_json_body_is_answered_or_refused_and_never_breaks(serve) -> None:
    names = ["prompt", "n", "logprobs", "stop", "stream", "stream_options", "max_tokens", "best_of", "echo"]
    values = st.recursive(
        st.none() | st.booleans() | st.integers(-2, 9) | st.floats(allow_nan=False) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner, max_size=3),
    )
    prompts = values | st.lists(st.integers(0, 9), max_size=3)
    bodies = st.fixed_dictionaries({"prompt": prompts}, optional=dict.fromkeys(names[1:], values))
    examples: list[Any] = []
    given(st.lists(bodies, max_size=4))(lambda each: examples.extend(each))()
    async with serve("ok") as rig, aiohttp.ClientSession() as http:
        config = rig.gateway.open_session().agent_config()
        headers = {"Authorization": f"Bearer {config.api_key}"}
        statuses: set[int] = set()
        for body in [{"prompt": "ok"}, *examples]:
            async with http.post(f"{config.base_url}/completions", data=json.dumps(body), headers=headers) as response:
                statuses.add(response.status)
                assert response.status in (200, 400), (body, await response.text())
                await response.read()
    assert statuses == {200, 400}
