"""A training backend small enough to read: a table of bigram logits over bytes, trained exactly, in numpy."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rllm.errors import BackendError, ContextOverflow, ModelError
from rllm.interfaces.backend import Capabilities, LossSpec, ModelInfo, OptimizerSpec, Row, StepResult
from rllm.interfaces.sampler import DeltaListener, Sample, Sampler, SamplingParams
from rllm.types import FinishReason

__all__ = ["ExampleBackend", "ExampleSampler"]

VOCABULARY = 257
"""256 bytes and the end of a reply."""
END = 256
CONTEXT = 512


class ExampleSampler:
    """Samples from the published table, one token at a turn of the event loop."""

    def __init__(self, table: NDArray[np.float64], version: int) -> None:
        self.table = table
        self.version = version

    @property
    def context_length(self) -> int:
        """Tokens of prompt and reply together."""
        return CONTEXT

    async def sample(
        self, prompt_ids: NDArray[np.int32], params: SamplingParams, *, on_delta: DeltaListener | None = None
    ) -> Sample:
        """Sample one reply. Raises `ContextOverflow` when not even one token fits."""
        if prompt_ids.size + 1 > CONTEXT:
            raise ContextOverflow(f"a prompt of {prompt_ids.size} tokens and a reply do not fit in {CONTEXT}")
        random = np.random.default_rng(params.seed)
        room = min(params.max_tokens, CONTEXT - prompt_ids.size)
        ids: list[int] = []
        logprobs: list[float] = []
        versions: list[int] = []
        last = int(prompt_ids[-1])
        reason = FinishReason.LENGTH
        while len(ids) < room and reason is FinishReason.LENGTH:
            await asyncio.sleep(0)
            last, logprob = _draw(self.table[last], params, random)
            ids.append(last)
            logprobs.append(logprob)
            versions.append(self.version)
            if on_delta is not None:
                on_delta(np.array([last], dtype=np.int32))
            text = bytes(each for each in ids if each != END).decode(errors="replace")
            if last == END or last in params.stop_ids or any(stop in text for stop in params.stop):
                reason = FinishReason.STOP
        return Sample(
            ids=np.array(ids, dtype=np.int32),
            logprobs=np.array(logprobs, dtype=np.float32),
            versions=np.array(versions, dtype=np.int32),
            finish_reason=reason,
        )


class ExampleBackend:
    """`open(model="bigram")` starts from random weights, `open(model=<folder>)` from saved ones."""

    def __init__(self) -> None:
        self._table: NDArray[np.float64] | None = None
        self._moments = np.zeros((2, VOCABULARY, VOCABULARY))
        self._steps = 0
        self._sampler = ExampleSampler(np.zeros((VOCABULARY, VOCABULARY)), 0)
        self._folder: Path | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Full training with one loss, exact and deterministic."""
        return Capabilities(
            losses=frozenset({"policy_gradient"}),
            aggregations=frozenset({"token-mean"}),
            per_token_advantages=True,
            full=True,
            forward_only=True,
            deterministic=True,
        )

    @property
    def sampler(self) -> Sampler:
        """Samples from the published weights."""
        return self._sampler

    @property
    def version(self) -> int:
        """The published weight version."""
        return self._sampler.version

    async def open(self, *, model: str, seed: int, trainable: bool = True) -> ModelInfo:
        """Load or initialise the table. Raises `ModelError` when `model` is neither `bigram` nor a folder."""
        saved = Path(model) / "bigram.npy"
        if model == "bigram":
            self._table = np.random.default_rng(seed).normal(0, 0.5, (VOCABULARY, VOCABULARY))
        elif saved.is_file():
            self._table = np.load(saved)
        else:
            raise ModelError(f"there is no model {model!r}; expected 'bigram' or a folder with bigram.npy")
        self._sampler = ExampleSampler(self._table.copy(), 0)
        self._moments = np.zeros((2, VOCABULARY, VOCABULARY))
        self._steps = 0
        self._folder = Path(tempfile.mkdtemp(prefix="example-"))
        _write_tokenizer(self._folder)
        return ModelInfo(
            name=model,
            tokenizer_dir=self._folder,
            context_length=CONTEXT,
            parameters=self._table.size,
            trainable_parameters=self._table.size if trainable else 0,
            device="cpu",
            dtype="float64",
        )

    async def step(self, rows: Sequence[Row], loss: LossSpec, optimizer: OptimizerSpec) -> StepResult:
        """One AdamW step on l = -A * logp, averaged over tokens. Raises `BackendError` when it is not finite."""
        table = self._opened()
        if loss.name not in self.capabilities.losses or loss.aggregation not in self.capabilities.aggregations:
            raise BackendError(f"cannot compute {loss!r}")
        tokens = sum(int(row.mask.sum()) for row in rows)
        gradient = np.zeros_like(table)
        value = entropy = kl = 0.0
        for row in rows:
            before, at = row.ids[:-1], np.flatnonzero(row.mask[1:])
            logps = _log_softmax(table[before[at]] / row.temperature)
            target = row.ids[1:][at]
            logp = logps[np.arange(at.size), target]
            scale = row.weight * row.advantages[1:][at].astype(np.float64) / max(tokens, 1)
            value -= float(scale @ logp)
            pull = np.exp(logps)
            entropy -= float((pull * logps).sum()) / max(tokens, 1)
            drift = row.logprobs[1:][at] - logp
            kl += float((np.exp(-drift) - 1 + drift).sum()) / max(tokens, 1)
            pull[np.arange(at.size), target] -= 1
            np.add.at(gradient, before[at], pull * (scale / row.temperature)[:, None])
        norm = float(np.sqrt((gradient**2).sum()))
        if not np.isfinite(value) or not np.isfinite(norm):
            raise BackendError(f"the loss is {value} and the gradient norm {norm}; the weights are unchanged")
        self._update(table, gradient, norm, optimizer)
        metrics = {"entropy": entropy, "kl_behaviour": kl}
        return StepResult(loss=value, grad_norm=norm, tokens=tokens, metrics=metrics)

    async def logprobs(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        """Log-probability of each token given the one before it; entry 0 is 0."""
        table = self._opened()
        found = []
        for row in rows:
            logps = _log_softmax(table[row.ids[:-1]] / row.temperature)
            picked = logps[np.arange(row.ids.size - 1), row.ids[1:]]
            found.append(np.concatenate([[0.0], picked]).astype(np.float32))
        return found

    async def publish(self) -> int:
        """Give the sampler a copy of the table."""
        self._sampler.table = self._opened().copy()
        self._sampler.version += 1
        return self.version

    async def save(self, path: Path) -> None:
        """Write table, moments and counters."""
        table = self._opened()
        (path / "model").mkdir(parents=True)
        np.save(path / "model" / "bigram.npy", table)
        _write_tokenizer(path / "model")
        np.save(path / "moments.npy", self._moments)
        (path / "state.json").write_text(json.dumps({"steps": self._steps, "version": self.version}))

    async def load(self, path: Path) -> None:
        """Restore what `save` wrote and publish it under its version."""
        self._opened()
        state = json.loads((path / "state.json").read_text())
        self._table = np.load(path / "model" / "bigram.npy")
        self._moments = np.load(path / "moments.npy")
        self._steps = state["steps"]
        self._sampler.table = self._table.copy()
        self._sampler.version = state["version"]

    async def close(self) -> None:
        """Forget the weights; idempotent."""
        self._table = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _opened(self) -> NDArray[np.float64]:
        if self._table is None:
            raise BackendError("the backend is not open")
        return self._table

    def _update(
        self, table: NDArray[np.float64], gradient: NDArray[np.float64], norm: float, optimizer: OptimizerSpec
    ) -> None:
        if optimizer.grad_clip and norm > optimizer.grad_clip:
            gradient = gradient * (optimizer.grad_clip / norm)
        self._steps += 1
        first, second = optimizer.betas
        self._moments[0] = first * self._moments[0] + (1 - first) * gradient
        self._moments[1] = second * self._moments[1] + (1 - second) * gradient**2
        mean = self._moments[0] / (1 - first**self._steps)
        spread = np.sqrt(self._moments[1] / (1 - second**self._steps))
        table -= optimizer.lr * (mean / (spread + optimizer.eps) + optimizer.weight_decay * table)


def _draw(logits: NDArray[np.float64], params: SamplingParams, random: np.random.Generator) -> tuple[int, float]:
    """One token and its log-probability after temperature, top-k and top-p."""
    if params.temperature == 0:
        best = int(logits.argmax())
        return best, float(_log_softmax(logits)[best])
    logps = _log_softmax(logits / params.temperature)
    order = np.argsort(-logps, kind="stable")
    keep = params.top_k or VOCABULARY
    if params.top_p < 1:
        keep = min(keep, int(np.searchsorted(np.cumsum(np.exp(logps[order])), params.top_p)) + 1)
    kept = order[:keep]
    logps = _log_softmax(logps[kept])
    index = int(random.choice(kept.size, p=np.exp(logps)))
    return int(kept[index]), float(logps[index])


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def _write_tokenizer(folder: Path) -> None:
    """A byte-level `tokenizer.json`: token i is byte i, and token 256 ends a reply."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    end = {"id": END, "content": "<|end|>", "special": True, "normalized": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{**end, "single_word": False, "lstrip": False, "rstrip": False}],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
