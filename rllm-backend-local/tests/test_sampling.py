"""The sampler: what it draws is what the model says, whatever else is in the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from rllm_backend_local.fitness import check_fitness
from rllm_backend_local.messages import Finished, Request
from rllm_backend_local.policy import Policy
from rllm_backend_local.sampling import SlotSampler
from rllm_backend_local.slots import Segment


def request(
    number: int,
    prompt: Sequence[int] | np.ndarray,
    *,
    max_tokens: int = 8,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    stop: tuple[str, ...] = (),
    stop_ids: tuple[int, ...] = (),
    seed: int | None = None,
    stream: bool = False,
) -> Request:
    return Request(
        number,
        np.asarray(prompt, np.int32),
        max_tokens,
        temperature,
        top_p,
        top_k,
        stop,
        stop_ids,
        number if seed is None else seed,
        stream,
    )


def sampler(policy: Policy, *, slots: int = 32, cache_bytes: int = 1 << 28, context: int = 256) -> SlotSampler:
    return SlotSampler(
        policy.sampler,
        slots=slots,
        context_length=context,
        cache_bytes=cache_bytes,
        decode=lambda ids: "".join(chr(97 + i % 26) for i in ids),
    )


def drain(engine: SlotSampler, requests: Sequence[Request] = ()) -> dict[int, Finished]:
    for one in requests:
        engine.submit(one)
    found = {}
    while engine.busy:
        found.update({done.number: done for done in engine.step()[0]})
    return found


def random_prompts(count: int, *, longest: int = 60) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.integers(3, 300, rng.integers(1, longest)).astype(np.int32) for _ in range(count)]


def plain_table(policy: Policy, ids: np.ndarray) -> torch.Tensor:
    """Log-probabilities [L, V] by the model's own forward pass."""
    with torch.no_grad():
        out = policy.base(input_ids=torch.from_numpy(ids.astype(np.int64))[None], use_cache=False)
    table: torch.Tensor = out.logits[0].log_softmax(-1)
    return table


@pytest.mark.parametrize("kind", ["llama", "qwen2-sliding", "gemma3", "gpt2"])
def test_logprobs_are_those_of_a_full_forward_pass(
    kind: str, tmp_path: Path, make_policy: Callable[..., Policy], write_model: Callable[..., Path]
) -> None:
    policy = make_policy(write_model(tmp_path / "model", kind))
    check_fitness(policy, name=kind)
    prompts = random_prompts(12, longest=90)
    found = drain(sampler(policy), [request(n, p, max_tokens=30) for n, p in enumerate(prompts)])
    for number, prompt in enumerate(prompts):
        ids = np.concatenate([prompt, found[number].ids])
        table = plain_table(policy, ids)
        places = np.arange(prompt.size, ids.size)
        np.testing.assert_allclose(found[number].logprobs, table[places - 1, ids[places]], atol=2e-5)


def test_greedy_is_what_transformers_generates(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    prompts = random_prompts(10)
    found = drain(sampler(policy), [request(n, p, max_tokens=20, temperature=0) for n, p in enumerate(prompts)])
    for number, prompt in enumerate(prompts):
        ids = torch.from_numpy(prompt.astype(np.int64))[None]
        expected = policy.base.generate(  # type: ignore[operator]
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=20,
            do_sample=False,
            eos_token_id=None,
        )
        assert found[number].ids.tolist() == expected[0, prompt.size :].tolist()
        table = plain_table(policy, expected[0].numpy())
        places = np.arange(prompt.size, expected.shape[1])
        np.testing.assert_allclose(found[number].logprobs, table[places - 1, expected[0, places]], atol=2e-5)


def test_a_sample_is_the_same_bits_whatever_else_is_sampled(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    prompts = random_prompts(40)
    engine = sampler(policy, slots=64)
    alone = {n: drain(engine, [request(n, p, max_tokens=12)])[n] for n, p in enumerate(prompts)}
    rng = np.random.default_rng(0)
    for trial in range(20):
        engine.weights_changed(trial)
        chosen = rng.permutation(40)[: rng.integers(1, 40)].tolist()
        crowd = [request(n, prompts[n], max_tokens=12) for n in chosen]
        for extra in range(rng.integers(0, 80)):
            start = prompts[rng.integers(40)][: rng.integers(1, 60)]
            crowd.append(
                request(
                    1000 + extra,
                    np.concatenate([start, rng.integers(3, 300, rng.integers(0, 90))]),
                    max_tokens=int(rng.integers(1, 30)),
                    temperature=float(rng.choice([0.0, 0.5, 1.0])),
                    top_k=int(rng.choice([0, 5])),
                    top_p=float(rng.choice([1.0, 0.9])),
                )
            )
        found: dict[int, Finished] = {}
        order = [crowd[i] for i in rng.permutation(len(crowd))]
        while order or engine.busy:
            for _ in range(rng.integers(0, 20)):
                if order:
                    engine.submit(order.pop())
            found.update({done.number: done for done in engine.step()[0]})
        for number in chosen:
            np.testing.assert_array_equal(found[number].ids, alone[number].ids)
            assert found[number].logprobs.tobytes() == alone[number].logprobs.tobytes()


class _Watched(SlotSampler):
    """Counts the prompt tokens that it reads."""

    read = 0

    def _forward(self, decoding: Sequence[int], segments: Sequence[Segment]) -> tuple[torch.Tensor, list[int]]:
        self.read += sum(segment.count for segment in segments)
        return super()._forward(decoding, segments)


def test_requests_that_share_a_prompt_read_it_once(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    engine = _Watched(policy.sampler, slots=32, context_length=256, cache_bytes=1 << 28, decode=lambda ids: "")
    prompt = random_prompts(1)[0]
    found = drain(engine, [request(n, prompt) for n in range(16)])
    longer = np.concatenate([prompt, found[0].ids])
    drain(engine, [request(0, longer)])
    assert engine.read == longer.size
    assert len({done.ids.tobytes() for done in found.values()}) > 1


def test_new_weights_are_used_and_named_on_each_token(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    engine = sampler(policy)
    prompt = random_prompts(1)[0]
    before = drain(engine, [request(0, prompt)])[0]
    with torch.no_grad():
        for parameter in policy.learner.parameters():
            parameter.mul_(1.3)
    assert drain(engine, [request(0, prompt)])[0].ids.tolist() == before.ids.tolist()
    engine.submit(request(0, prompt))
    engine.step()
    policy.publish()
    engine.weights_changed(1)
    assert drain(engine)[0].versions.tolist() == [0] + [1] * 7
    after = drain(engine, [request(0, prompt)])[0]
    ids = np.concatenate([prompt, after.ids])
    places = np.arange(prompt.size, ids.size)
    np.testing.assert_allclose(after.logprobs, plain_table(policy, ids)[places - 1, ids[places]], atol=2e-5)


def test_stop_ids_stop_strings_and_limits_end_a_reply(make_policy: Callable[..., Policy]) -> None:
    engine = sampler(make_policy(), context=64)
    prompt = random_prompts(1, longest=20)[0]
    free = drain(engine, [request(0, prompt, max_tokens=20)])[0]
    assert (free.ids.size, free.stopped) == (20, False)
    stop_id = int(free.ids[3])
    first = free.ids.tolist().index(stop_id)
    stopped = drain(engine, [request(0, prompt, max_tokens=20, stop_ids=(stop_id,))])[0]
    assert (stopped.ids.tolist(), stopped.stopped) == (free.ids[: first + 1].tolist(), True)
    text = "".join(chr(97 + i % 26) for i in free.ids)
    cut = drain(engine, [request(0, prompt, max_tokens=20, stop=("@", text[5:8]))])[0]
    assert (cut.ids.size, cut.stopped) == (text.index(text[5:8]) + 3, True)
    full = drain(engine, [request(0, prompt, max_tokens=10_000)])[0]
    assert (full.ids.size, full.stopped) == (64 - prompt.size, False)
    assert full.ids[:20].tolist() == free.ids.tolist()


def test_cancelled_requests_free_their_slots(make_policy: Callable[..., Policy]) -> None:
    engine = sampler(make_policy(), slots=2)
    prompt = random_prompts(1)[0]
    for number in range(4):
        engine.submit(request(number, prompt, max_tokens=50))
    for _ in range(3):
        engine.step()
    for number in (0, 1, 3):
        engine.cancel(number)
    assert list(drain(engine)) == [2]
    assert not engine.busy


def test_more_and_longer_requests_than_memory_holds_are_all_served(
    make_policy: Callable[..., Policy],
) -> None:
    policy = make_policy()
    prompts = random_prompts(30, longest=200)
    expected = drain(sampler(policy), [request(n, p, max_tokens=10) for n, p in enumerate(prompts)])
    found = drain(sampler(policy, cache_bytes=1 << 19), [request(n, p, max_tokens=10) for n, p in enumerate(prompts)])
    for number in range(30):
        assert found[number].ids.tolist() == expected[number].ids.tolist()


def test_streamed_tokens_concatenate_to_the_reply(make_policy: Callable[..., Policy]) -> None:
    engine = sampler(make_policy())
    prompts = random_prompts(3)
    for number, prompt in enumerate(prompts):
        engine.submit(request(number, prompt, stream=number != 1))
    told: dict[int, list[int]] = {}
    found: dict[int, Finished] = {}
    while engine.busy:
        finished, deltas = engine.step()
        for delta in deltas:
            told.setdefault(delta.number, []).append(delta.token)
        found.update({done.number: done for done in finished})
    assert told == {number: found[number].ids.tolist() for number in (0, 2)}
