"""Small random models in a folder, and rows over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rllm.interfaces.backend import Row
from rllm_backend_local.embedded_tokenizer import write_tokenizer
from rllm_backend_local.policy import LoraOptions, Policy

CONTEXT = 256


def _write_model(path: Path, kind: str = "llama") -> Path:
    """A random model of some architecture with the embedded tokenizer."""
    from transformers import (
        Gemma3ForCausalLM,
        Gemma3TextConfig,
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
    )

    path.mkdir(parents=True, exist_ok=True)
    size = write_tokenizer(path, context_length=CONTEXT)
    shape: dict[str, Any] = {
        "vocab_size": size,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    model: Any
    if kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=True))
    elif kind == "qwen2-sliding":
        layers = ["sliding_attention", "full_attention"]
        model = Qwen2ForCausalLM(Qwen2Config(**shape, use_sliding_window=True, sliding_window=8, layer_types=layers))
    elif kind == "gemma3":
        layers = ["sliding_attention", "full_attention"]
        model = Gemma3ForCausalLM(Gemma3TextConfig(**shape, head_dim=8, sliding_window=8, layer_types=layers))
    else:
        model = GPT2LMHeadModel(
            GPT2Config(vocab_size=size, n_embd=32, n_layer=2, n_head=4, n_positions=CONTEXT, initializer_range=0.2)
        )
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 20 thousand parameters."""
    return _write_model(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="session")
def write_model() -> Callable[..., Path]:
    """Write a random model of some architecture into a folder."""
    return _write_model


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the worker samples small models."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_policy(model_path: Path) -> Callable[..., Policy]:
    """Policies over the random Llama, or over another directory."""

    def make(path: Path = model_path, *, trainable: bool = True, lora_rank: int = 0) -> Policy:
        torch.manual_seed(1)
        return Policy(
            path,
            name=str(path),
            device="cpu",
            dtype=torch.float32,
            trainable=trainable,
            lora=LoraOptions(rank=lora_rank),
        )

    return make


def _make_row(
    rng: np.random.Generator,
    *,
    prompt: NDArray[np.int32] | None = None,
    tail: int = 5,
    gap: bool = False,
    temperature: float = 1.0,
    weight: float = 1.0,
) -> Row:
    """A row with a prompt and a trained tail; with `gap`, some of the tail is not trained."""
    prompt = rng.integers(3, 300, rng.integers(1, 12)).astype(np.int32) if prompt is None else prompt
    ids = np.concatenate([prompt, rng.integers(3, 300, tail)]).astype(np.int32)
    mask = np.zeros(ids.size, np.uint8)
    mask[prompt.size :] = 1
    if gap:
        mask[prompt.size + 1 : prompt.size + 3] = 0
    on = mask.astype(bool)
    return Row(
        ids=ids,
        mask=mask,
        advantages=np.where(on, rng.normal(), 0).astype(np.float32),
        logprobs=np.where(on, -5 + rng.normal(0, 0.5, ids.size), 0).astype(np.float32),
        versions=np.where(on, 0, -1).astype(np.int32),
        temperature=temperature,
        weight=weight,
    )


@pytest.fixture
def rows() -> list[Row]:
    """Two groups that share a prompt, single rows, gaps, temperatures and weights."""
    rng = np.random.default_rng(5)
    shared = [rng.integers(3, 300, n).astype(np.int32) for n in (9, 4)]
    made = [_make_row(rng, prompt=shared[0], tail=int(rng.integers(1, 9))) for _ in range(6)]
    made += [_make_row(rng, prompt=shared[1], tail=6, gap=True, temperature=0.7) for _ in range(4)]
    made += [_make_row(rng, tail=int(rng.integers(1, 40)), weight=0.5) for _ in range(5)]
    return made


@pytest.fixture
def make_row() -> Callable[..., Row]:
    """Random rows."""
    return _make_row
