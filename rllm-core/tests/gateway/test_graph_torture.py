"""Random conversations with forks, edits, retries, parallel calls and re-serialisations: no sampled token is lost,
doubled, or recorded after a prompt that it was not sampled from."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gateway_toy import CHATML, STRIP_THINKING, ScriptedSampler, Toy, tokenizer_dir
from hypothesis import given, settings
from hypothesis import strategies as st

from rllm.gateway import Renderer, SessionSpec, TokenUpstream, load_renderer
from rllm.gateway.sampling import ClientSampling
from rllm.gateway.session import Session
from rllm.gateway.wire import Request
from rllm.types import CapturedCall, Exactness, tokens_of

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
ENDINGS = st.sampled_from(["<|im_end|>", "", "<|endoftext|>"])
BODIES = st.sampled_from(
    [
        "hello",
        "  spaced  \n\n",
        "<think>\nwhy not\n</think>\n\nhello",
        'go<tool_call>{"name": "f", "arguments": { "x" :  1}}</tool_call>',
        "<tool_call>broken",
        "",
        "😀 é",
    ]
)
ECHOES = st.sampled_from(["same", "blocks", "stripped", "no_reasoning", "compact", "index"])
STEP = st.tuples(
    st.sampled_from(["extend", "extend", "extend", "fork", "edit", "parallel", "retry", "new", "tools"]),
    st.integers(0, 10),
    BODIES,
    ENDINGS,
    ECHOES,
)


def echoed(message: dict[str, Any], how: str) -> dict[str, Any]:
    """A reply as one client or another sends it back."""
    message = json.loads(json.dumps(message))
    content = message.get("content")
    if how == "blocks" and content:
        message["content"] = [{"type": "text", "text": content, "cache_control": {"type": "ephemeral"}}]
    elif how == "stripped" and content:
        message["content"] = content.strip()
    elif how == "no_reasoning":
        message.pop("reasoning_content", None)
        if not content:
            message.pop("content", None)
    for call in message.get("tool_calls", []):
        if how == "compact":
            call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), separators=(",", ":"))
        elif how == "index":
            call["index"] = 0
    return message


class World:
    """Several agents in one session, and what the sampler did for them."""

    def __init__(self, renderer: Renderer, toy: Toy) -> None:
        self.toy = toy
        self.say = ""
        self.count = 0
        self.sampler = ScriptedSampler(self._script, context_length=100_000)
        self.upstream = TokenUpstream(self.sampler, renderer, "m")
        self.session = Session(spec=SessionSpec(seed=1), model="m")
        self.threads: list[tuple[list[dict[str, Any]], Any]] = [([], None)]

    def _script(self, prompt: Any, params: Any) -> list[int]:
        self.count += 1
        body, _, ending = self.say.partition("|end|")
        he, llo = (self.toy.tokenizer.token_to_id(token) for token in ("he", "llo"))
        return [*self.toy.ids(body), he, llo, *self.toy.ids(f"{self.count}{ending}")]

    async def ask(self, messages: list[dict[str, Any]], tools: Any, *, n: int = 1, retry: bool = False) -> Any:
        request = Request(
            messages=json.loads(json.dumps(messages)),
            sampling=ClientSampling(),
            reply_id=f"r{self.count}",
            tools=tools,
            n=n,
            is_retry=retry,
        )
        reply = await self.upstream.answer(self.session, request, None)
        self.session.attempts.answered(reply.key, reply)
        return reply

    async def step(self, kind: str, pick: int, body: str, ending: str, echo: str) -> None:
        self.say = f"{body}|end|{ending}"
        history, tools = self.threads[pick % len(self.threads)]
        if kind == "new":
            history, tools = [], None
            self.threads.append((history, tools))
        elif kind == "fork":
            history = history[: 2 * (pick % (len(history) // 2 + 1))]
            self.threads.append((history, tools))
        elif kind == "tools":
            self.threads.append((history, tools := TOOLS))
        elif kind == "edit" and history:
            at = pick % len(history)
            history[at] = {"role": history[at]["role"], "content": f"edited {pick}"}
        asked = [*history, {"role": "user", "content": f"q{pick}"}]
        if kind == "parallel":
            replies = await asyncio.gather(*(self.ask(asked, tools) for _ in range(2)), self.ask(asked, tools, n=2))
            choices = [choice for reply in replies for choice in reply.choices]
            self.threads += [([*asked, echoed(choice.message, echo)], tools) for choice in choices]
            return
        reply = await self.ask(asked, tools)
        if kind == "retry":
            again = await self.ask(asked, tools, retry=True)
            assert again.id == reply.id
        history[:] = [*asked, echoed(reply.choices[0].message, echo)]


@pytest.fixture(scope="module", params=[CHATML, STRIP_THINKING], ids=["chatml", "strip_thinking"])
def renderer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    path: Path = tmp_path_factory.mktemp("torture")
    return load_renderer(tokenizer_dir(path, request.param), "m")


@settings(max_examples=80)
@given(steps=st.lists(STEP, min_size=1, max_size=14))
def test_every_sampled_token_is_recorded_once_after_its_own_prompt(renderer: Renderer, toy: Toy, steps: Any) -> None:
    world = World(renderer, toy)

    async def run() -> None:
        for step in steps:
            await world.step(*step)

    asyncio.run(run())
    calls = world.session.calls
    given_out = Counter(
        (p.tobytes(), s.ids.tobytes()) for p, s in zip(world.sampler.prompts, world.sampler.samples, strict=True)
    )
    recorded: Counter[tuple[bytes, bytes]] = Counter()
    for call in calls:
        whole = tokens_of(call, calls)
        size = call.response_ids.size
        recorded[whole[:-size].tobytes(), call.response_ids.tobytes()] += 1
        assert call.trainable
    assert recorded == given_out
    assert rows(calls) == Counter(s.ids.tobytes() for s in world.sampler.samples)
    assert not any(call.exactness is Exactness.INEXACT for call in calls)


def rows(calls: list[CapturedCall]) -> Counter[bytes]:
    """Sampled spans with mask 1 over all paths; a call is trained in the first path that has it."""
    by_id = {call.id: call for call in calls}
    parents = {call.parent_id for call in calls}
    taken: set[str] = set()
    spans: Counter[bytes] = Counter()
    for leaf in (call for call in calls if call.id not in parents):
        path = [leaf]
        while (parent := path[-1].parent_id) is not None:
            path.append(by_id[parent])
        for call in path:
            if call.id not in taken:
                taken.add(call.id)
                spans[call.response_ids.tobytes()] += 1
    return spans


async def test_an_unbroken_conversation_is_one_path_whatever_the_client_does_to_replies(
    toy: Toy, renderer: Renderer
) -> None:
    world = World(renderer, toy)
    for at, how in enumerate(["same", "blocks", "stripped", "no_reasoning", "compact", "index"]):
        await world.step("extend", 0, ["hello", "<think>\nx\n</think>\n\n a \n", ""][at % 3], "<|im_end|>", how)
    calls = world.session.calls
    assert [call.parent_id for call in calls] == [None, *[call.id for call in calls[:-1]]]
    assert np.array_equal(tokens_of(calls[-1], calls)[: world.sampler.prompts[-1].size], world.sampler.prompts[-1])
