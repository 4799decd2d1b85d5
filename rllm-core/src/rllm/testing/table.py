"""The smallest backend that really learns: one table of logits, the same before every token, in numpy.

For tests of everything around a backend (gateway, trainer, checkpoints, conformance kits) in milliseconds
and without torch. Its tokens are characters, so a reply is a string of independent draws from the table.
"""

from __future__ import annotations

import json
import string
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rllm.errors import BackendError, ContextOverflow, ModelError
from rllm.interfaces.backend import Capabilities, LossSpec, ModelInfo, OptimizerSpec, Row, StepResult
from rllm.interfaces.sampler import DeltaListener, Sample, SamplingParams
from rllm.types import FinishReason

__all__ = ["TableBackend", "TableSampler", "write_tokenizer"]

EOS = 0
_SPECIAL = ("<eos>", "<user>", "<assistant>", "<system>")
_CHARACTERS = string.digits + string.ascii_letters + string.punctuation + " \n"
_TEMPLATE = (
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{% if m.role == 'assistant' %}{{ '<eos>' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


def write_tokenizer(folder: Path) -> int:
    """Write a character tokenizer with a chat template; returns the size of its vocabulary."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    vocabulary = {token: index for index, token in enumerate([*_SPECIAL, "?unk", *_CHARACTERS])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="?unk"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<eos>",
        "unk_token": "?unk",
        "chat_template": _TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(vocabulary)


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()), np.float64)


class TableSampler:
    """Samples from a table of logits; each request is answered at once."""

    def __init__(self, logits: NDArray[np.float64], context_length: int) -> None:
        self.logits = logits
        self.version = 0
        self.context_length = context_length
        self.closed = False

    def distribution(self, params: SamplingParams) -> NDArray[np.float64]:
        """Log-probabilities that a request samples from, -inf where nothing is sampled."""
        if params.temperature == 0:
            return _log_softmax(self.logits)
        logits = self.logits / params.temperature
        if params.top_k:
            logits = np.where(logits < np.sort(logits)[-min(params.top_k, logits.size)], -np.inf, logits)
        if params.top_p < 1:
            order = np.argsort(-logits, kind="stable")
            mass = np.cumsum(np.exp(_log_softmax(logits))[order])
            keep = order[: int(np.searchsorted(mass, params.top_p)) + 1]
            logits = np.where(np.isin(np.arange(logits.size), keep), logits, -np.inf)
        return _log_softmax(logits)

    async def sample(
        self, prompt_ids: NDArray[np.int32], params: SamplingParams, *, on_delta: DeltaListener | None = None
    ) -> Sample:
        if self.closed:
            raise BackendError("the backend is closed")
        room = self.context_length - prompt_ids.size
        if room < 1:
            raise ContextOverflow(f"the prompt has {prompt_ids.size} tokens; the context holds {self.context_length}")
        logprobs = self.distribution(params)
        rng = np.random.default_rng(params.seed)
        ids: list[int] = []
        reason = FinishReason.LENGTH
        for _ in range(min(params.max_tokens, room)):
            greedy = params.temperature == 0
            token = int(logprobs.argmax() if greedy else rng.choice(logprobs.size, p=np.exp(logprobs)))
            ids.append(token)
            if token == EOS or token in params.stop_ids:
                reason = FinishReason.STOP
                break
        array = np.array(ids, np.int32)
        if on_delta is not None:
            on_delta(array)
        chosen = logprobs[array].astype(np.float32)
        return Sample(array, chosen, np.full(array.size, self.version, np.int32), reason)


class TableBackend:
    """`rllm.interfaces.backend.Backend` on one table of logits; plain gradient descent, no optimizer state."""

    def __init__(self, *, context_length: int = 512) -> None:
        self._context_length = context_length
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._sampler: TableSampler | None = None
        self._logits = np.zeros(0)
        self._version = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            losses=frozenset({"policy_gradient"}),
            aggregations=frozenset({"token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "constant"}),
            per_token_advantages=True,
            full=True,
            forward_only=True,
            deterministic=True,
            schedules=frozenset({"constant", "linear", "cosine"}),
        )

    async def open(self, *, model: str, seed: int, trainable: bool = True) -> ModelInfo:
        self._folder = tempfile.TemporaryDirectory(prefix="rllm-table-")
        folder = Path(self._folder.name)
        size = write_tokenizer(folder)
        if model == "table":
            self._logits = np.random.default_rng(seed).normal(0, 0.1, size)
        elif (Path(model) / "logits.npy").is_file():
            self._logits = np.load(Path(model) / "logits.npy", allow_pickle=False)
        else:
            raise ModelError(f"the table backend has no model {model!r}; it has 'table', and folders that it saved")
        self._sampler = TableSampler(self._logits.copy(), self._context_length)
        return ModelInfo(
            name=model,
            tokenizer_dir=folder,
            context_length=self._context_length,
            parameters=size,
            trainable_parameters=size if trainable else 0,
            device="cpu",
            dtype="float64",
        )

    @property
    def sampler(self) -> TableSampler:
        if self._sampler is None:
            raise BackendError("the backend is not open")
        return self._sampler

    @property
    def version(self) -> int:
        return self._version

    async def step(self, rows: Sequence[Row], loss: LossSpec, optimizer: OptimizerSpec) -> StepResult:
        terms = [_policy_gradient(self._logits, row) for row in rows]
        tokens = sum(int(row.mask.sum()) for row in rows)
        weights = [_row_weight(row, loss, len(rows), tokens) for row in rows]
        value = sum(w * v for w, (v, _) in zip(weights, terms, strict=True))
        gradient = np.sum([w * g for w, (_, g) in zip(weights, terms, strict=True)], axis=0)
        norm = float(np.linalg.norm(gradient))
        if not np.isfinite(value) or not np.isfinite(norm):
            raise BackendError("the loss or its gradient is not finite; the weights are unchanged")
        if optimizer.grad_clip and norm > optimizer.grad_clip:
            gradient = gradient * (optimizer.grad_clip / norm)
        self._logits = self._logits - optimizer.lr * gradient
        logprobs = _log_softmax(self._logits)
        entropy = float(-(np.exp(logprobs) * logprobs).sum())
        return StepResult(
            loss=float(value),
            grad_norm=norm,
            tokens=tokens,
            metrics={"entropy": entropy, "kl_behaviour": 0.0},
        )

    async def logprobs(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        tables = [_log_softmax(self._logits / row.temperature).astype(np.float32) for row in rows]
        return [
            np.concatenate([np.zeros(1, np.float32), table[row.ids[1:]]])
            for row, table in zip(rows, tables, strict=True)
        ]

    async def publish(self) -> int:
        self._version += 1
        self.sampler.logits = self._logits.copy()
        self.sampler.version = self._version
        return self._version

    async def save(self, path: Path) -> None:
        (path / "model").mkdir(parents=True)
        np.save(path / "model" / "logits.npy", self._logits)
        (path / "version.json").write_text(json.dumps(self._version))

    async def load(self, path: Path) -> None:
        self._logits = np.load(path / "model" / "logits.npy", allow_pickle=False)
        self._version = json.loads((path / "version.json").read_text())
        self.sampler.logits = self._logits.copy()
        self.sampler.version = self._version

    async def close(self) -> None:
        if self._sampler is not None:
            self._sampler.closed = True
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _policy_gradient(logits: NDArray[np.float64], row: Row) -> tuple[float, NDArray[np.float64]]:
    """Sum over trained tokens of -A log p(token), and its gradient in the logits."""
    logprobs = _log_softmax(logits / row.temperature)
    trained = row.mask == 1
    ids, advantages = row.ids[trained], row.advantages[trained].astype(np.float64)
    gradient = np.exp(logprobs) * advantages.sum()
    np.subtract.at(gradient, ids, advantages)
    return float(-(advantages * logprobs[ids]).sum()), gradient / row.temperature


def _row_weight(row: Row, loss: LossSpec, rows: int, tokens: int) -> float:
    if loss.name != "policy_gradient":
        raise BackendError(f"the table backend has no loss {loss.name!r}")
    match loss.aggregation:
        case "token-mean":
            return row.weight / max(tokens, 1)
        case "seq-mean-token-sum":
            return row.weight / rows
        case "seq-mean-token-mean":
            return row.weight / (rows * max(int(row.mask.sum()), 1))
        case "constant":
            return row.weight / (rows * loss.params["horizon"])
    raise BackendError(f"the table backend has no aggregation {loss.aggregation!r}")
