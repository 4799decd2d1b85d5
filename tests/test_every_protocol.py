"""Real small models behind the gateway, in every protocol, streaming and not: however badly they answer, each token
that they sampled is in the record once, with its own log-probability."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import numpy as np
import openai
import pytest
from google import genai
from google.genai import types

from rllm.engine.source import open_backend
from rllm.gateway import Gateway, SessionSpec
from rllm.gateway.session import Session
from rllm.interfaces.sampler import Sample
from rllm.trainer.rows import trajectory_rows
from rllm.types import Exactness, Step, Trajectory, tokens_of
from rllm_backend_local.backend import LocalBackend

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
QUESTIONS = ("8,6=14", "3,9=12: and now?")
LIMIT = 8
Talk = Callable[[Session, bool], Awaitable[None]]


async def chat(session: Session, stream: bool) -> None:
    config, messages = session.agent_config(), []
    async with openai.AsyncOpenAI(base_url=config.base_url, api_key=config.api_key) as client:
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            asked = await client.chat.completions.create(model="m", messages=messages, stream=stream)
            if stream:
                said = "".join([chunk.choices[0].delta.content or "" async for chunk in asked if chunk.choices])
            else:
                said = asked.choices[0].message.content
            messages.append({"role": "assistant", "content": said})


async def completions(session: Session, stream: bool) -> None:
    config = session.agent_config()
    async with openai.AsyncOpenAI(base_url=config.base_url, api_key=config.api_key) as client:
        for question in QUESTIONS:
            asked = await client.completions.create(model="m", prompt=question, max_tokens=LIMIT, stream=stream)
            if stream:
                async for _ in asked:
                    pass


async def responses(session: Session, stream: bool) -> None:
    config = session.agent_config()
    items: list[Any] = []
    async with openai.AsyncOpenAI(base_url=config.base_url, api_key=config.api_key) as client:
        for question in QUESTIONS:
            items.append({"role": "user", "content": question})
            if stream:
                async with client.responses.stream(model="m", input=items) as events:
                    async for event in events:
                        if event.type in ("response.completed", "response.incomplete"):
                            reply = event.response
            else:
                reply = await client.responses.create(model="m", input=items)
            items += [item.model_dump(exclude_none=True) for item in reply.output]


async def messages(session: Session, stream: bool) -> None:
    history: list[Any] = []
    key = session.agent_config().api_key
    async with anthropic.AsyncAnthropic(base_url=session.url, api_key=key) as client:
        for question in QUESTIONS:
            history.append({"role": "user", "content": question})
            asked: dict[str, Any] = {"model": "m", "max_tokens": 50, "messages": history}
            if stream:
                async with client.messages.stream(**asked) as events:
                    reply = await events.get_final_message()
            else:
                reply = await client.messages.create(**asked)
            history.append({"role": "assistant", "content": reply.content})


async def gemini(session: Session, stream: bool) -> None:
    options = types.HttpOptions(base_url=session.url)
    client = genai.Client(api_key=session.agent_config().api_key, http_options=options)
    talk = client.aio.chats.create(model="m")
    for question in QUESTIONS:
        if stream:
            async for _ in await talk.send_message_stream(question):
                pass
        else:
            await talk.send_message(question)
    await client.aio.aclose()
    client.close()


PROTOCOLS: dict[str, Talk] = {
    "chat": chat,
    "completions": completions,
    "responses": responses,
    "messages": messages,
    "gemini": gemini,
}


@asynccontextmanager
async def listening(backend: LocalBackend, model: str) -> AsyncIterator[tuple[Gateway, list[Sample]]]:
    """The model behind a gateway, and every sample that it gives."""
    samples: list[Sample] = []
    async with open_backend(backend, model=model, seed=0, trainable=False) as (_, upstream):
        sample = upstream.sampler.sample

        class Heard:
            context_length = upstream.sampler.context_length

            async def sample(self, *args: Any, **options: Any) -> Sample:
                samples.append(await sample(*args, **options))
                return samples[-1]

        upstream.sampler = Heard()
        async with Gateway(upstream) as gateway:
            yield gateway, samples


@pytest.mark.slow
@pytest.mark.parametrize("model", ["embedded", "smollm2"])
async def test_every_token_that_was_sampled_is_in_the_record_once(model: str) -> None:
    async with listening(LocalBackend(), model) as (gateway, samples):
        for name, talk in PROTOCOLS.items():
            for stream in (False, True):
                samples.clear()
                session = gateway.open_session(SessionSpec(sampling={"temperature": 1.0, "max_tokens": LIMIT}))
                await talk(session, stream)
                trace = await session.close()
                where = f"{model}, {name}, {'streaming' if stream else 'whole'}"
                assert len(trace.calls) == len(samples) == 2, where
                by_id = {call.id: call for call in trace.calls}
                for call, sample in zip(trace.calls, samples, strict=True):
                    assert np.array_equal(call.response_ids, sample.ids), where
                    assert np.array_equal(call.logprobs, sample.logprobs), where
                    assert call.exactness in (Exactness.EXACT, Exactness.BRIDGED), where
                    assert call.trainable, where
                if name != "completions":
                    first, second = trace.calls
                    assert second.parent_id == first.id, where
                    assert np.array_equal(tokens_of(second, trace.calls)[: tokens_of(first, trace.calls).size],
                                          tokens_of(first, trace.calls)), where  # fmt: skip
                trajectory = Trajectory(steps=[Step(call=call) for call in trace.calls])
                rows = trajectory_rows(trajectory, 1.0, by_id, temperature=1.0, episode_id="e")
                trained = np.concatenate([row.logprobs[row.mask == 1] for row in rows])
                assert np.array_equal(trained, np.concatenate([sample.logprobs for sample in samples])), where
