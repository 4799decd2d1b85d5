"""Streams: half characters, stop strings and markup never leak; the record is what was sampled."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm.gateway.rendering.replytext import TextStream, read_reply


def stream_of(toy: Any, text: str, cuts: list[int], **options: Any) -> tuple[str, str]:
    """What a stream gives out of the ids of `text`, fed in pieces."""
    stream = TextStream(toy.text, **{"thinking": False, "tools": True, **options})
    ids = np.array(toy.ids(text), np.int32)
    bounds = [0, *sorted(cut for cut in cuts if 0 < cut < ids.size), ids.size]
    pieces = [stream.feed(ids[low:high]) for low, high in pairwise(bounds)]
    return "".join(piece[0] for piece in pieces), "".join(piece[1] for piece in pieces)


async def test_multi_byte_characters_are_never_split(serve, connect) -> None:
    text = "naïve 😀 日本語 é✓"
    async with serve(text) as rig:
        session = rig.gateway.open_session()
        stream = await connect(session.agent_config()).chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
        trace = await session.close()
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces)
    assert len([piece for piece in pieces if piece]) > 5
    assert np.array_equal(trace.calls[0].response_ids, rig.sampler.samples[0].ids)
    assert trace.calls[0].reply["content"] == text


async def test_a_stop_string_never_leaks(serve, connect, toy) -> None:
    async with serve(lambda prompt, params: toy.ids("one E two END three")) as rig:
        client = connect(rig.gateway.open_session().agent_config())
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True, stop="END"
        )
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(pieces) == "one E two "
    assert rig.sampler.params[0].stop == ("END",)


PIECES = st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "f", "arguments": {}}', "hello", "\n", " ", "<",
     "😀", "é", "</", "END", "EN", "x", "<tool", "{"]
)  # fmt: skip


@given(
    pieces=st.lists(PIECES, max_size=12),
    cuts=st.lists(st.integers(0, 80), max_size=8),
    thinking=st.booleans(),
    tools=st.booleans(),
    stop=st.sampled_from([(), ("END",), ("END", "x\n")]),
)
def test_what_is_streamed_is_a_beginning_of_the_reply(toy, pieces, cuts, thinking, tools, stop) -> None:
    text = "".join(pieces)
    options: dict[str, Any] = {"thinking": thinking, "tools": tools, "stop": stop}
    reasoning, content = stream_of(toy, text, cuts, **options)
    message = read_reply(text, **options)
    assert (message.get("reasoning_content") or "").startswith(reasoning)
    assert (message["content"] or "").startswith(content)


@pytest.mark.parametrize("cuts", [[], [1, 2, 3], list(range(40))])
def test_all_plain_text_is_streamed_before_the_end(toy, cuts: list[int]) -> None:
    assert stream_of(toy, "just some text", cuts, tools=False)[1] == "just some text"


async def test_bytes_that_are_no_character_end_up_as_in_the_whole_reply(serve, connect, toy) -> None:
    smile = toy.ids("😀")
    async with serve(lambda prompt, params: [*smile[:2], *toy.ids("x<|im_end|>")]) as rig:
        client = connect(rig.gateway.open_session().agent_config())
        options = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        whole = (await client.chat.completions.create(**options)).choices[0].message.content
        stream = await client.chat.completions.create(**options, stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == whole


async def test_events_are_well_formed(serve) -> None:
    import aiohttp

    async with serve("hello") as rig, aiohttp.ClientSession() as http:
        config = rig.gateway.open_session().agent_config()
        async with http.post(
            f"{config.base_url}/chat/completions",
            json={"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True},
            headers={"Authorization": f"Bearer {config.api_key}"},
        ) as response:
            assert response.content_type == "text/event-stream"
            events = (await response.text()).split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
