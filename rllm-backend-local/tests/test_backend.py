"""The backend and its worker process: the same answers over the socket, and what happens when a process dies."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import torch

from rllm.errors import BackendError, ConfigError, ContextOverflow, ModelError
from rllm.interfaces.backend import LossSpec, OptimizerSpec, Row
from rllm.interfaces.sampler import SamplingParams
from rllm.types import FinishReason
from rllm_backend_local.backend import LocalBackend

PROMPT = np.array([5, 9, 12, 40], np.int32)
SPEC, OPTIMIZER = LossSpec(name="ppo_clip"), OptimizerSpec(lr=1e-2)


@pytest_asyncio.fixture
async def backend(model_path: Path, tmp_path: Path) -> AsyncIterator[LocalBackend]:
    made = LocalBackend(cache_dir=tmp_path, cache_mib=64)
    await made.open(model=str(model_path), seed=3)
    yield made
    await made.close()


async def test_a_model_is_opened_sampled_and_described(backend: LocalBackend, model_path: Path) -> None:
    told: list[int] = []
    params = SamplingParams(max_tokens=6, seed=1)
    sample = await backend.sampler.sample(PROMPT, params, on_delta=lambda ids: told.extend(ids.tolist()))
    again = await backend.sampler.sample(PROMPT, params)
    assert sample.ids.tolist() == told == again.ids.tolist()
    assert sample.finish_reason is FinishReason.LENGTH
    assert sample.ids.dtype == np.dtype(np.int32)
    assert sample.logprobs.dtype == np.dtype(np.float32)
    assert sample.versions.tolist() == [0] * 6
    fresh = {(await backend.sampler.sample(PROMPT, SamplingParams(max_tokens=6))).ids.tobytes() for _ in range(4)}
    assert len(fresh) > 1


async def test_many_concurrent_requests_get_their_own_replies(backend: LocalBackend) -> None:
    params = [SamplingParams(max_tokens=5, seed=seed) for seed in range(300)]
    together = await asyncio.gather(*(backend.sampler.sample(PROMPT, one) for one in params))
    for seed in (0, 17, 299):
        alone = await backend.sampler.sample(PROMPT, params[seed])
        assert alone.logprobs.tobytes() == together[seed].logprobs.tobytes()


async def test_prompts_that_do_not_fit_are_refused_and_long_replies_are_cut(backend: LocalBackend) -> None:
    most = backend.sampler.context_length
    assert most == 256
    with pytest.raises(ContextOverflow, match="256 tokens"):
        await backend.sampler.sample(np.full(most, 7, np.int32), SamplingParams(max_tokens=1))
    sample = await backend.sampler.sample(np.full(most - 1, 7, np.int32), SamplingParams(max_tokens=99))
    assert (sample.ids.size, sample.finish_reason) == (1, FinishReason.LENGTH)


async def test_a_cancelled_request_leaves_room_for_others(backend: LocalBackend) -> None:
    tasks = [asyncio.create_task(backend.sampler.sample(PROMPT, SamplingParams(max_tokens=240))) for _ in range(400)]
    await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    start = time.monotonic()
    await backend.sampler.sample(PROMPT, SamplingParams(max_tokens=5))
    assert time.monotonic() - start < 2


async def test_steps_reach_the_sampler_only_when_published(backend: LocalBackend, rows: list[Row]) -> None:
    params = SamplingParams(max_tokens=6, seed=1)
    before = await backend.sampler.sample(PROMPT, params)
    result = await backend.step(rows, SPEC, OPTIMIZER)
    assert result.tokens == sum(int(row.mask.sum()) for row in rows)
    assert {"entropy", "kl_behaviour", "clip_fraction"} <= set(result.metrics)
    unpublished = await backend.sampler.sample(PROMPT, params)
    assert unpublished.logprobs.tobytes() == before.logprobs.tobytes()
    assert (await backend.publish(), backend.version) == (1, 1)
    after = await backend.sampler.sample(PROMPT, params)
    assert after.versions.tolist() == [1] * 6
    ids = np.concatenate([PROMPT, after.ids])
    row = dataclasses.replace(rows[0], **fields_of(ids))
    (logprobs,) = await backend.logprobs([row])
    np.testing.assert_allclose(logprobs[PROMPT.size :], after.logprobs, atol=2e-5)


def fields_of(ids: np.ndarray) -> dict[str, Any]:
    size = ids.size
    return {
        "ids": ids,
        "mask": np.zeros(size, np.uint8),
        "advantages": np.zeros(size, np.float32),
        "logprobs": np.zeros(size, np.float32),
        "versions": np.zeros(size, np.int32),
    }


@pytest.mark.parametrize("lora_rank", [0, 4])
async def test_a_saved_run_goes_on_bit_for_bit(
    lora_rank: int, model_path: Path, tmp_path: Path, rows: list[Row]
) -> None:
    async def fresh() -> LocalBackend:
        made = LocalBackend(cache_dir=tmp_path, lora_rank=lora_rank)
        await made.open(model=str(model_path), seed=3)
        return made

    async def steps(backend: LocalBackend, count: int) -> None:
        for _ in range(count):
            await backend.step(rows, SPEC, OPTIMIZER)
            await backend.publish()

    whole, first, second = await fresh(), await fresh(), await fresh()
    await steps(whole, 4)
    await steps(first, 2)
    await first.save(tmp_path / "half")
    await second.load(tmp_path / "half")
    assert second.version == 2
    await steps(second, 2)
    params = SamplingParams(max_tokens=20, seed=1)
    for name, backend in (("whole", whole), ("second", second)):
        await backend.save(tmp_path / name)
    assert (tmp_path / "whole" / "model" / "model.safetensors").read_bytes() == (
        tmp_path / "second" / "model" / "model.safetensors"
    ).read_bytes()
    expected, found = await whole.sampler.sample(PROMPT, params), await second.sampler.sample(PROMPT, params)
    assert expected.logprobs.tobytes() == found.logprobs.tobytes()
    await asyncio.gather(first.close(), second.close())
    reopened = LocalBackend(cache_dir=tmp_path)
    await reopened.open(model=str(tmp_path / "whole" / "model"), seed=0, trainable=False)
    same = await reopened.sampler.sample(PROMPT, params)
    np.testing.assert_allclose(same.logprobs, expected.logprobs, atol=1e-5)
    with pytest.raises(BackendError, match="trainable=False"):
        await reopened.step(rows, SPEC, OPTIMIZER)
    await asyncio.gather(whole.close(), reopened.close())


async def test_loading_from_a_folder_without_a_checkpoint_says_so(backend: LocalBackend, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"no state\.pt"):
        await backend.load(tmp_path / "nothing")


async def test_errors_of_the_worker_arrive_as_they_are(backend: LocalBackend, rows: list[Row]) -> None:
    with pytest.raises(ConfigError, match="no loss 'gspo'"):
        await backend.step(rows, LossSpec(name="gspo"), OPTIMIZER)
    spoilt = dataclasses.replace(rows[0], advantages=np.full(rows[0].ids.size, np.nan, np.float32))
    with pytest.raises(BackendError, match="not finite"):
        await backend.step([spoilt], SPEC, OPTIMIZER)
    assert (await backend.step(rows, SPEC, OPTIMIZER)).tokens > 0


async def test_a_killed_worker_fails_every_call_with_its_exit_code(backend: LocalBackend, rows: list[Row]) -> None:
    waiting = [asyncio.create_task(backend.sampler.sample(PROMPT, SamplingParams(max_tokens=200))) for _ in range(500)]
    waiting.append(asyncio.create_task(backend.step(rows * 50, SPEC, OPTIMIZER)))  # type: ignore[arg-type]
    await asyncio.sleep(0.02)
    os.kill(backend.worker_pid, signal.SIGKILL)
    results = await asyncio.gather(*waiting, return_exceptions=True)
    failed = [result for result in results if isinstance(result, BaseException)]
    assert failed
    assert all(isinstance(error, BackendError) and "exit code -9" in str(error) for error in failed)
    with pytest.raises(BackendError, match="exit code -9"):
        await backend.publish()


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def gone_within(pid: int, limit_s: float) -> bool:
    end = time.monotonic() + limit_s
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(pid)


async def test_closing_ends_the_worker_and_can_be_repeated(model_path: Path, tmp_path: Path) -> None:
    backend = LocalBackend(cache_dir=tmp_path)
    await backend.close()
    await backend.open(model=str(model_path), seed=0)
    pid = backend.worker_pid
    task = asyncio.create_task(backend.sampler.sample(PROMPT, SamplingParams(max_tokens=200)))
    await asyncio.sleep(0)
    await backend.close()
    await backend.close()
    assert gone_within(pid, 5)
    with pytest.raises(BackendError, match="closed"):
        await task
    with pytest.raises(BackendError, match="not open"):
        _ = backend.sampler


PARENT = """
import asyncio, sys
from rllm_backend_local.backend import LocalBackend

async def main():
    backend = LocalBackend(cache_dir=sys.argv[2])
    await backend.open(model=sys.argv[1], seed=0)
    print(backend.worker_pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_parent_leaves_no_worker_behind(how: signal.Signals, model_path: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(model_path), str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(how)
        parent.wait()
    assert gone_within(pid, 5)


async def test_ctrl_c_does_not_end_the_worker(backend: LocalBackend) -> None:
    os.kill(backend.worker_pid, signal.SIGINT)
    assert (await backend.sampler.sample(PROMPT, SamplingParams(max_tokens=3))).ids.size == 3


async def test_models_that_cannot_be_used_are_one_clear_line(tmp_path: Path, write_model: Callable[..., Path]) -> None:
    bare = write_model(tmp_path / "bare")
    (bare / "chat_template.jinja").unlink()
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.gguf").write_bytes(b"GGUFnonsense")
    cases = {
        str(bare): "no chat template",
        str(tmp_path / "empty"): "no config.json",
        str(tmp_path / "none.gguf"): "there is no file",
        str(tmp_path / "broken.gguf"): "broken.gguf",
        "nonsense": "no model 'nonsense'",
    }
    backend = LocalBackend(cache_dir=tmp_path / "cache")
    for model, message in cases.items():
        with pytest.raises(ModelError, match=message) as caught:
            await backend.open(model=model, seed=0)
        assert "\n" not in str(caught.value)
    await backend.close()


def test_impossible_options_are_refused_all_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        LocalBackend(device="tpu", dtype="int4", lora_rank=-1, micro_batch_tokens=0, target_modules=["q_proj"])
    assert len(caught.value.faults) == 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
async def test_a_gpu_that_is_not_there_is_named(model_path: Path, tmp_path: Path) -> None:
    backend = LocalBackend(device="cuda", cache_dir=tmp_path)
    with pytest.raises(ConfigError, match="sees no CUDA device"):
        await backend.open(model=str(model_path), seed=0)
    await backend.close()


def test_the_parent_never_imports_torch() -> None:
    code = "import sys, rllm_backend_local.backend, rllm_backend_local.plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "peft", "tokenizers"} & set(done.stdout.split())
