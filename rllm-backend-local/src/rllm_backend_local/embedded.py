"""The embedded model: a small transformer made and warm-started by this code, the same for a seed on a machine.

It speaks the chat protocol like any other model. A few seconds of supervised steps on imperfect demonstrations give
it the format of the countdown benchmark and little arithmetic: what reinforcement learning then starts from.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import tempfile
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rllm_backend_local.demonstrations import Demonstration, demonstrations
from rllm_backend_local.embedded_tokenizer import PAD, write_tokenizer

__all__ = ["Recipe", "embedded_model"]

_VERSION = 1
"""Raise when the code below makes another model from the same recipe."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Shape of the embedded model and how it is warm-started."""

    hidden: int = 96
    intermediate: int = 256
    layers: int = 2
    heads: int = 4
    key_value_heads: int = 1
    context_length: int = 1024
    max_number: int = 30
    max_target: int = 99
    correct: float = 0.4
    """Fraction of the demonstrations that solve their problem."""
    steps: int = 400
    batch: int = 64
    learning_rate: float = 4e-3


def embedded_model(cache: Path, seed: int, recipe: Recipe | None = None) -> Path:
    """Directory of the embedded model of that seed, made on first use (some seconds) and kept under `cache`."""
    recipe = recipe or Recipe()
    digest = hashlib.blake2b(repr((_VERSION, astuple(recipe))).encode(), digest_size=6).hexdigest()
    path = cache / "embedded" / f"{digest}-{seed}"
    if path.is_dir():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    try:
        _make(made, seed, recipe)
        try:
            made.rename(path)
        except OSError:
            if not path.is_dir():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return path


def _make(path: Path, seed: int, recipe: Recipe) -> None:
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    size = write_tokenizer(path, context_length=recipe.context_length)
    tokenizer = AutoTokenizer.from_pretrained(path)
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=-(-size // 16) * 16,
            hidden_size=recipe.hidden,
            intermediate_size=recipe.intermediate,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.key_value_heads,
            head_dim=recipe.hidden // recipe.heads,
            max_position_embeddings=recipe.context_length,
            tie_word_embeddings=True,
            initializer_range=0.05,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.convert_tokens_to_ids(PAD),
        )
    )
    _warm_start(model, tokenizer, seed, recipe)
    model.eval().save_pretrained(path)


def _warm_start(model: torch.nn.Module, tokenizer: Any, seed: int, recipe: Recipe) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    source = demonstrations(
        np.random.default_rng(seed),
        max_number=recipe.max_number,
        max_target=recipe.max_target,
        correct=recipe.correct,
    )
    encode = _Encoder(tokenizer)
    for step in range(recipe.steps):
        shape = min(1.0, (step + 1) / 20) * (1 + math.cos(math.pi * step / recipe.steps)) / 2
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * shape
        ids, labels = encode.batch(list(islice(source, recipe.batch)))
        answers = labels[:, int((labels >= 0).any(0).long().argmax()) :]  # the prompts' logits are not needed
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=answers.shape[1] + 1).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), answers.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


class _Encoder:
    """Demonstrations as token ids; each text is encoded once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}

    def _prompt(self, text: str) -> list[int]:
        if text not in self._known:
            messages = [{"role": "user", "content": text}]
            written = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            self._known[text] = self._tokenizer(written)["input_ids"]
        return self._known[text]

    def _reply(self, text: str) -> list[int]:
        if text not in self._known:
            self._known[text] = [*self._tokenizer(text)["input_ids"], self._tokenizer.eos_token_id]
        return self._known[text]

    def batch(self, demonstrations: list[Demonstration]) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids [B, L] and labels, which are -100 on the prompt and on padding."""
        sequences = [(self._prompt(one.prompt), self._reply(one.answer)) for one in demonstrations]
        longest = max(len(start) + len(end) for start, end in sequences)
        ids = torch.zeros((len(sequences), longest), dtype=torch.long)
        labels = torch.full((len(sequences), longest), -100)
        for line, (start, end) in enumerate(sequences):
            ids[line, : len(start) + len(end)] = torch.tensor(start + end)
            labels[line, len(start) : len(start) + len(end)] = torch.tensor(end)
        return ids, labels
