"""The scripted sampler and model server do what their users rely on."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import numpy as np
import pytest

from rllm import arrays
from rllm.errors import BackendError, ContextOverflow
from rllm.interfaces.sampler import Sampler, SamplingParams
from rllm.testing import ByteCodec, ScriptedModelServer, ScriptedSampler
from rllm.types import FinishReason

CODEC = ByteCodec()
PROMPT = arrays.ids(CODEC.encode("hello"))
ENOUGH = SamplingParams(max_tokens=100)


async def test_replies_come_in_order_and_end_with_the_end_token() -> None:
    sampler: Sampler = ScriptedSampler(["one", "zwölf"], version=3)
    for text in ("one", "zwölf"):
        sample = await sampler.sample(PROMPT, ENOUGH)
        assert sample.ids.tolist() == [*text.encode(), 256]
        assert CODEC.decode(sample.ids.tolist()) == text
        assert sample.finish_reason is FinishReason.STOP
        assert sample.logprobs.tolist() == [-0.5] * sample.ids.size
        assert sample.versions.tolist() == [3] * sample.ids.size


async def test_a_script_that_is_over_says_so() -> None:
    sampler = ScriptedSampler(["one"])
    await sampler.sample(PROMPT, ENOUGH)
    with pytest.raises(BackendError, match="the script has 1 replies, and this is call 2"):
        await sampler.sample(PROMPT, ENOUGH)


async def test_an_exception_in_the_script_is_raised_in_its_turn() -> None:
    sampler = ScriptedSampler([BackendError("gone"), "back"])
    with pytest.raises(BackendError, match="gone"):
        await sampler.sample(PROMPT, ENOUGH)
    assert (await sampler.sample(PROMPT, ENOUGH)).ids.size == 5


async def test_a_function_answers_by_the_prompts_text() -> None:
    sampler = ScriptedSampler(lambda prompt: prompt.upper())
    samples = await asyncio.gather(
        *(sampler.sample(arrays.ids(CODEC.encode(text)), ENOUGH) for text in ("a", "b", "c"))
    )
    assert [CODEC.decode(each.ids.tolist()) for each in samples] == ["A", "B", "C"]
    assert [each.tolist() for each in sampler.prompts] == [[97], [98], [99]]


@pytest.mark.parametrize(
    ("params", "context", "text", "reason"),
    [
        (SamplingParams(max_tokens=3), 100, "abc", FinishReason.LENGTH),
        (SamplingParams(max_tokens=50), 7, "ab", FinishReason.LENGTH),
        (SamplingParams(max_tokens=50, stop_ids=(ord("b"),)), 100, "ab", FinishReason.STOP),
        (SamplingParams(max_tokens=50, stop=("cd",)), 100, "abcd", FinishReason.STOP),
    ],
)
async def test_a_reply_is_cut_where_the_parameters_say(
    params: SamplingParams, context: int, text: str, reason: FinishReason
) -> None:
    sample = await ScriptedSampler(["abcdef"], context_length=context).sample(PROMPT, params)
    assert CODEC.decode(sample.ids.tolist()) == text
    assert sample.finish_reason is reason


async def test_a_prompt_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ContextOverflow):
        await ScriptedSampler(["a"], context_length=5).sample(PROMPT, ENOUGH)


async def test_the_listener_hears_every_token_and_versions_may_change_on_the_way() -> None:
    sampler = ScriptedSampler(["abc"])
    heard: list[Any] = []

    def listen(ids: Any) -> None:
        heard.append(ids)
        sampler.version += 1

    sample = await sampler.sample(PROMPT, ENOUGH, on_delta=listen)
    assert np.array_equal(np.concatenate(heard), sample.ids)
    assert sample.versions.tolist() == [0, 1, 2, 3]


async def test_a_cancelled_request_is_no_longer_active() -> None:
    sampler = ScriptedSampler(["abc"], delay_s=60)
    running = asyncio.ensure_future(sampler.sample(PROMPT, ENOUGH))
    await asyncio.sleep(0)
    assert sampler.active == 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sampler.active == 0


async def test_the_server_answers_and_records_by_session_and_role() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    async with ScriptedModelServer(["hi", {"content": None, "tool_calls": [call]}]) as server:
        url = server.base_url("s1")
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer k"}) as client:
            body = {"model": "m", "messages": []}
            async with client.post(f"{url}/chat/completions", json=body) as response:
                first = await response.json()
            async with client.post(
                f"{url.removesuffix('/v1')}/agents/judge/v1/chat/completions", json={**body, "stream": True}
            ) as response:
                stream = await response.text()
        assert first["choices"][0]["message"] == {"role": "assistant", "content": "hi"}
        assert '"index": 0, "id": "c1"' in stream
        assert '"finish_reason": "tool_calls"' in stream
        assert stream.endswith("data: [DONE]\n\n")
        assert [(each.session, each.role, each.key) for each in server.requests] == [
            ("s1", "default", "k"),
            ("s1", "judge", "k"),
        ]
