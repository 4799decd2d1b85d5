"""A client's retry of an answered request gets the same reply; a second sample is a second sample."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from rllm.gateway import SessionSpec
from rllm.gateway.attempts import Attempts
from rllm.gateway.wire import Reply
from rllm.types import Usage

USER = [{"role": "user", "content": "hi"}]
RETRY = {"x-stainless-retry-count": "1"}


async def ask(client: Any, messages: list[Any] = USER, **options: Any) -> Any:
    return await client.chat.completions.create(model="m", messages=messages, **options)


async def test_a_retry_is_served_the_reply_that_exists(serve, connect) -> None:
    async with serve("hello") as rig:
        session = rig.gateway.open_session(SessionSpec(max_calls=1))
        client = connect(session.agent_config())
        first = await ask(client)
        session.spec = SessionSpec(max_calls=2)
        again = await ask(client, extra_headers=RETRY)
        trace = await session.close()
    assert again.id == first.id
    assert len(trace.calls) == len(rig.sampler.samples) == 1


async def test_a_retried_stream_says_it_all_again(serve, connect) -> None:
    async with serve("hello") as rig:
        client = connect(rig.gateway.open_session().agent_config())
        said = []
        for headers in ({}, RETRY):
            stream = await ask(client, stream=True, extra_headers=headers)
            said.append("".join([chunk.choices[0].delta.content or "" async for chunk in stream]))
        assert said == ["hello", "hello"]
        assert len(rig.sampler.samples) == 1


async def test_the_same_question_without_evidence_is_a_new_sample(serve, connect) -> None:
    async with serve("hello") as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        ids = {(await ask(client)).id for _ in range(3)}
        ids.add((await ask(client, extra_headers=RETRY, temperature=0.5)).id)
        trace = await session.close()
    assert len(ids) == len(trace.calls) == 4


async def test_a_reply_that_was_built_on_is_not_served_again(serve, connect) -> None:
    async with serve("hello") as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        first = await ask(client)
        await ask(client, [*USER, {"role": "assistant", "content": "hello"}, *USER])
        again = await ask(client, extra_headers=RETRY)
        trace = await session.close()
    assert again.id != first.id
    assert len(trace.calls) == 3


async def test_a_retry_after_a_failure_is_sampled_with_the_seed_of_the_failed_attempt(serve, connect, toy) -> None:
    failures = [True, False, True, False]

    def script(prompt: Any, params: Any) -> list[int]:
        if failures.pop(0):
            raise ValueError("flaky")
        return toy.ids("x<|im_end|>")

    async with serve(script) as rig:
        session = rig.gateway.open_session(SessionSpec(seed=1))
        client = connect(session.agent_config())
        replies = []
        for _ in range(2):
            with pytest.raises(openai.InternalServerError):
                await ask(client)
            replies.append(await ask(client, extra_headers=RETRY))
        trace = await session.close()
    assert replies[0].id != replies[1].id
    assert len(trace.calls) == 2
    seeds = [params.seed for params in rig.sampler.params]
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]


def test_a_reply_that_could_not_be_written_is_given_to_the_next_identical_request() -> None:
    attempts, reply = Attempts(), Reply("r", "m", 0, [], Usage())
    attempts.begin(b"k")
    attempts.answered(b"k", reply)
    attempts.lost(b"k", reply)
    assert attempts.earlier(b"other", is_retry=True) is None
    assert attempts.earlier(b"k", is_retry=False) is reply
    assert attempts.earlier(b"k", is_retry=True) is None
