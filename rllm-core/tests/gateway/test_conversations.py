"""Several turns: what was sampled stays, only what is new is rendered (pitfalls A1, A3, A4, A6, A7, A8)."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import numpy as np
import openai
import pytest
from gateway_toy import ALTERNATING, CHATML, STRIP_THINKING

from rllm import arrays
from rllm.gateway import SessionSpec
from rllm.interfaces.sampler import Sample
from rllm.types import Exactness, FinishReason, tokens_of


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, **rest: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **rest}


async def say(client: Any, *messages: dict[str, Any], **options: Any) -> str:
    reply = await client.chat.completions.create(model="m", messages=list(messages), **options)
    return reply.choices[0].message.content


async def test_sampled_ids_survive_a_text_round_trip(serve, connect, toy) -> None:
    he, llo, hello = (toy.tokenizer.token_to_id(token) for token in ("he", "llo", "hello"))
    end = toy.ids("<|im_end|>")
    async with serve(lambda prompt, params: [he, llo, *end]) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        text = await say(client, user("a"))
        assert toy.ids(text) == [hello]
        await say(client, user("a"), assistant(text), user("b"))
        trace = await session.close()
    second = rig.sampler.prompts[1].tolist()
    assert hello not in second
    assert [he, llo] == second[len(rig.sampler.prompts[0]) :][:2]
    assert trace.calls[1].exactness is Exactness.EXACT
    assert np.array_equal(tokens_of(trace.calls[1], trace.calls)[: len(second)], rig.sampler.prompts[1])


async def test_a_template_that_drops_reasoning_does_not_break_the_path(serve, connect) -> None:
    replies = [f"<think>\nthought {at}\n</think>\n\nanswer {at}" for at in range(3)]
    async with serve(replies, template=STRIP_THINKING) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        history: list[dict[str, Any]] = []
        for at in range(3):
            history.append(user(f"question {at}"))
            history.append(assistant(await say(client, *history)))
        trace = await session.close()
    assert [call.exactness for call in trace.calls] == [Exactness.EXACT] * 3
    assert [call.parent_id for call in trace.calls] == [None, trace.calls[0].id, trace.calls[1].id]
    whole = rig.toy.text(tokens_of(trace.calls[2], trace.calls))
    assert [f"thought {at}" in whole for at in range(3)] == [True] * 3
    assert history[1]["content"] == "answer 0"


async def test_a_client_that_sends_reasoning_back_continues_the_same_path(serve, connect) -> None:
    async with serve("<think>\nwhy\n</think>\n\nyes\n\n", template=STRIP_THINKING) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        await say(client, user("a"))
        for echo in (
            assistant("yes", reasoning_content="why"),
            assistant("yes\n\n"),
            assistant("<think>\nwhy\n</think>\n\nyes"),
            {"role": "assistant", "content": [{"type": "text", "text": "yes", "cache_control": {"type": "ephemeral"}}]},
        ):
            await say(client, user("a"), echo, user("b"))
        trace = await session.close()
    assert {call.parent_id for call in trace.calls[1:]} == {trace.calls[0].id}
    prompts = rig.sampler.prompts[1:]
    assert all(np.array_equal(prompt, prompts[0]) for prompt in prompts)


async def test_rewritten_history_starts_a_path_and_later_turns_extend_it(serve, connect) -> None:
    async with serve(["a1", "a2", "a3", "a4"]) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        first = [user("u1")]
        second = [*first, assistant(await say(client, *first)), user("u2")]
        await say(client, *second)
        third = [user("u1"), assistant("summary"), user("u3")]
        fourth = [*third, assistant(await say(client, *third)), user("u4")]
        await say(client, *fourth)
        trace = await session.close()
    one, two, three, four = trace.calls
    assert (two.parent_id, three.parent_id, four.parent_id) == (one.id, None, three.id)
    assert [call.exactness for call in trace.calls] == [
        Exactness.EXACT,
        Exactness.EXACT,
        Exactness.FORKED,
        Exactness.EXACT,
    ]
    assert trace.ledger == {
        Exactness.EXACT: 3,
        Exactness.BRIDGED: 0,
        Exactness.FORKED: 1,
        Exactness.INEXACT: 0,
    }
    assert np.array_equal(three.added_ids, rig.renderer.render(third, None))


async def test_an_edited_reply_forks_off_the_part_that_is_known(serve, connect, toy) -> None:
    async with serve(["a1", "a2", "a3"]) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        history = [user("u1"), assistant("a1"), user("u2")]
        await say(client, *history[:1])
        await say(client, *history)
        await say(client, *history, assistant("edited"), user("u3"))
        trace = await session.close()
    one, _, three = trace.calls
    assert (three.parent_id, three.exactness) == (one.id, Exactness.FORKED)
    assert [message["content"] for message in three.new_messages] == ["u2", "edited", "u3"]
    assert "edited<|im_end|>" in toy.text(three.added_ids)


async def test_a_reply_that_a_weight_update_interrupts_is_sampled_on(serve, connect, toy) -> None:
    async with serve(["hel", "lo"]) as rig:
        whole, rig.sampler.sample = rig.sampler.sample, None

        async def interrupted(prompt: Any, params: Any, *, on_delta: Any = None) -> Any:
            first = not rig.sampler.samples
            sample = await whole(prompt, params, on_delta=on_delta)
            if first:
                rig.sampler.version += 1
                sample = dataclasses.replace(
                    sample, ids=sample.ids[:-1], logprobs=sample.logprobs[:-1], versions=sample.versions[:-1],
                    finish_reason=FinishReason.ABORT,
                )  # fmt: skip
            return sample

        rig.sampler.sample = interrupted
        session = rig.gateway.open_session(SessionSpec(sampling={"max_tokens": 20}))
        assert await say(connect(session.agent_config()), user("a")) == "hello"
        (call,) = (await session.close()).calls
    assert toy.text(call.response_ids) == "hello<|im_end|>"
    assert call.weight_versions.tolist() == [7, 7, 8, 8, 8][-call.response_ids.size :]
    assert call.finish_reason is FinishReason.STOP
    assert rig.sampler.params[1].max_tokens == 20 - 2
    assert np.array_equal(rig.sampler.prompts[1], np.concatenate([rig.sampler.prompts[0], call.response_ids[:2]]))


async def test_a_reply_that_is_never_finished_is_an_error_and_no_call(serve, connect) -> None:
    async with serve("x") as rig:

        async def aborted(prompt: Any, params: Any, *, on_delta: Any = None) -> Sample:
            return Sample(arrays.ids(), arrays.floats(), arrays.ids(), FinishReason.ABORT)

        rig.sampler.sample = aborted
        session = rig.gateway.open_session()
        with pytest.raises(openai.InternalServerError) as caught:
            await say(connect(session.agent_config()), user("a"))
        assert caught.value.status_code == 503
        trace = await session.close()
    assert (trace.calls, [error.is_upstream for error in trace.errors]) == ([], [True])


async def test_a_sampler_that_miscounts_is_an_error_and_no_call(serve, connect) -> None:
    async with serve("x") as rig:

        async def short(prompt: Any, params: Any, *, on_delta: Any = None) -> Sample:
            return Sample(arrays.ids([1, 2]), arrays.floats([-1.0]), arrays.ids([0, 0]), FinishReason.STOP)

        rig.sampler.sample = short
        session = rig.gateway.open_session()
        with pytest.raises(openai.InternalServerError, match="1 log-probabilities"):
            await say(connect(session.agent_config()), user("a"))
        assert not (await session.close()).calls


async def test_one_renderer_makes_every_turn(serve, connect) -> None:
    async with serve("yes") as rig:
        client = connect(rig.gateway.open_session().agent_config())
        text = await say(client, user("a"))
        await say(client, user("a"), assistant(text), user("b"))
    whole = rig.renderer.render([user("a"), assistant("yes"), user("b")], None)
    assert np.array_equal(rig.sampler.prompts[1], whole)


async def test_a_template_that_insists_on_alternation_works(serve, connect) -> None:
    async with serve("yes", template=ALTERNATING) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        text = await say(client, user("a"))
        await say(client, user("a"), assistant(text), user("b"))
        trace = await session.close()
    assert rig.toy.text(rig.sampler.prompts[0]).endswith("<|im_start|>assistant\n")
    assert trace.calls[1].exactness is Exactness.EXACT


async def test_what_the_template_adds_after_the_end_of_turn_is_not_the_models(serve, connect, toy) -> None:
    async with serve("hi") as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        await say(client, user("a"))
        await say(client, user("a"), assistant("hi"), user("b"))
        trace = await session.close()
    assert trace.calls[0].response_ids.tolist() == toy.ids("hi<|im_end|>")
    assert toy.text(trace.calls[1].added_ids).startswith("\n<|im_start|>user")


async def test_a_reply_cut_at_its_limit_is_closed_by_the_renderer(serve, connect, toy) -> None:
    async with serve("a long reply") as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        text = await say(client, user("a"), max_tokens=3)
        await say(client, user("a"), assistant(text), user("b"))
        trace = await session.close()
    assert text == "a l"
    assert trace.calls[0].finish_reason == "length"
    assert trace.calls[1].exactness is Exactness.BRIDGED
    assert trace.calls[1].trainable
    assert toy.text(trace.calls[1].added_ids).startswith("<|im_end|>\n<|im_start|>user")


async def test_a_reply_ended_by_a_stop_string_keeps_all_its_tokens(serve, connect, toy) -> None:
    async with serve(lambda prompt, params: toy.ids("so STOP")) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        text = await say(client, user("a"), stop=["STOP"])
        await say(client, user("a"), assistant(text), user("b"))
        trace = await session.close()
    assert text == "so "
    assert toy.text(trace.calls[0].response_ids) == "so STOP"
    assert trace.calls[1].parent_id == trace.calls[0].id
    assert toy.text(rig.sampler.prompts[1]).endswith(
        "so STOP<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_parallel_agents_with_one_history_stay_apart(serve, connect, toy) -> None:
    def script(prompt: Any, params: Any) -> list[int]:
        text = toy.text(prompt)
        return toy.ids(("second" if "first" in text else "first") + "<|im_end|>")

    async with serve(script, pause_s=0.001) as rig:
        session = rig.gateway.open_session()

        async def agent(role: str) -> None:
            client = connect(session.agent_config().for_agent(role))
            text = await say(client, user("go"))
            await say(client, user("go"), assistant(text), user("on"))

        await asyncio.gather(*(agent(f"role/{at}") for at in range(5)))
        trace = await session.close()
    by_id = {call.id: call for call in trace.calls}
    children = [call for call in trace.calls if call.parent_id is not None]
    assert len(children) == 5
    assert len({call.parent_id for call in children}) == 5
    assert all(by_id[call.parent_id].role == call.role for call in children)
    assert {call.role for call in trace.calls} == {f"role/{at}" for at in range(5)}


async def test_identical_questions_are_separate_samples_with_seeds_of_their_own(serve, connect) -> None:
    seeds = []
    for order in (1, -1):
        async with serve("x", pause_s=0.001) as rig:
            client = connect(rig.gateway.open_session(SessionSpec(seed=11)).agent_config())
            asks = [say(client, user("a")), say(client, user("b")), say(client, user("a"))]
            await asyncio.gather(*asks[::order])
            seeds.append(
                sorted(
                    (prompt.tobytes(), params.seed)
                    for prompt, params in zip(rig.sampler.prompts, rig.sampler.params, strict=True)
                )
            )
    assert seeds[0] == seeds[1]
    assert len({seed for _, seed in seeds[0]}) == 3


async def test_changed_tools_start_a_path_of_their_own(serve, connect) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    async with serve("x") as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        await say(client, user("a"), tools=tools)
        await say(client, user("a"), assistant("x"), user("b"))
        trace = await session.close()
    assert trace.calls[1].parent_id is None
    assert trace.calls[1].exactness is Exactness.FORKED


async def test_continuing_without_a_new_message_is_possible(serve, connect, toy) -> None:
    async with serve(["x", "y"]) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        await say(client, user("a"))
        await say(client, user("a"), assistant("x"))
        trace = await session.close()
    assert trace.calls[1].parent_id == trace.calls[0].id
    assert toy.text(trace.calls[1].added_ids) == "\n<|im_start|>assistant\n"


@pytest.mark.parametrize("template", [CHATML, STRIP_THINKING])
async def test_a_long_conversation_stores_each_token_once(serve, connect, template: str) -> None:
    async with serve("hello", template=template) as rig:
        session = rig.gateway.open_session()
        client = connect(session.agent_config())
        history: list[dict[str, Any]] = []
        for at in range(40):
            history.append(user(f"turn {at}"))
            history.append(assistant(await say(client, *history)))
        trace = await session.close()
    stored = sum(call.added_ids.size + call.response_ids.size for call in trace.calls)
    assert stored == rig.sampler.prompts[-1].size + rig.sampler.samples[-1].ids.size
    assert sum(len(call.new_messages) for call in trace.calls) == 40
