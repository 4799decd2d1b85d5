"""One optimizer step on rows: the same gradient whatever the micro-batches, or no change at all.

Rows are packed (`packing`), every micro-batch adds its part of the step's loss (`losses`), then one clipped AdamW
update. A non-finite loss or gradient raises before anything has changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rllm.errors import BackendError
from rllm.interfaces.backend import LossSpec, OptimizerSpec, Row, StepResult
from rllm_backend_local.losses import Tokens, check, k3, row_token_weights, token_losses
from rllm_backend_local.packing import MicroBatch, Sequence1D, pack
from rllm_backend_local.policy import Policy

__all__ = ["Learner", "token_logprobs"]


def _bias(batch: MicroBatch, window: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Additive mask [B, 1, L, L] of the lines' trees; `window` 0 means no sliding window."""
    segments, parents = torch.from_numpy(batch.segments), torch.from_numpy(batch.parents)
    mine = segments[:, :, None] == segments[:, None, :]
    seen = mine | (parents[:, :, None] == segments[:, None, :])
    seen &= torch.ones(seen.shape[-2:], dtype=torch.bool).tril()
    if window:
        positions = torch.from_numpy(batch.positions)
        seen &= positions[:, None, :] > positions[:, :, None] - window
    bias = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, float("-inf"))
    return bias[:, None].to(device)


def _masks(batch: MicroBatch, config: Any, dtype: torch.dtype, device: str) -> torch.Tensor | dict[str, torch.Tensor]:
    """The mask in the form that the model expects: one, or one for each type of layer."""
    text = config.get_text_config()
    window = getattr(text, "sliding_window", None) or 0
    kinds = set(getattr(text, "layer_types", None) or ())
    if not window or batch.ids.shape[1] <= window or kinds == {"full_attention"}:
        return _bias(batch, 0, dtype, device)
    if kinds <= {"sliding_attention"}:
        return _bias(batch, window, dtype, device)
    return {
        "full_attention": _bias(batch, 0, dtype, device),
        "sliding_attention": _bias(batch, window, dtype, device),
    }


def token_logprobs(
    model: torch.nn.Module, config: Any, batch: MicroBatch, temperatures: NDArray[np.float32], *, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability and entropy of each of the N predictions of a micro-batch, shape [N].

    `temperatures`, shape [N], divide the logits. The entropy carries no gradient.
    """
    places = np.unique(batch.sources)
    half = next(model.parameters()).dtype
    mixed: AbstractContextManager[object] = nullcontext()
    if device.startswith("cuda") and torch.cuda.is_bf16_supported():
        mixed = torch.autocast("cuda", torch.bfloat16)
        half = torch.bfloat16
    with mixed:
        logits = model(
            input_ids=torch.from_numpy(batch.ids).to(device),
            position_ids=torch.from_numpy(batch.positions).to(device),
            attention_mask=_masks(batch, config, half, device),
            use_cache=False,
            logits_to_keep=torch.from_numpy(places).to(device),
        ).logits
    lines = torch.from_numpy(batch.lines).to(device)
    columns = torch.from_numpy(np.searchsorted(places, batch.sources)).to(device)
    chosen = logits[lines, columns].float() / torch.from_numpy(temperatures).to(device)[:, None]
    table = chosen.log_softmax(-1)
    logp = table.gather(-1, torch.from_numpy(batch.targets).to(device)[:, None])[:, 0]
    with torch.no_grad():
        entropy = -(table.exp() * table.clamp(min=torch.finfo(table.dtype).min)).sum(-1)
    return logp, entropy


def _temperatures(rows: Sequence[Row], batch: MicroBatch) -> NDArray[np.float32]:
    per_row = np.array([row.temperature or 1.0 for row in rows], np.float32)
    return per_row[batch.rows]


def _gather(arrays: Sequence[NDArray[np.float32]], batch: MicroBatch, device: str) -> torch.Tensor:
    """Entries of per-row arrays at the predictions of a micro-batch."""
    offsets = np.cumsum([0, *(array.size for array in arrays)])
    flat = np.concatenate(arrays) if arrays else np.zeros(0, np.float32)
    return torch.from_numpy(flat[offsets[batch.rows] + batch.places].astype(np.float32)).to(device)


class _Totals:
    """Sums over the trained tokens of a step."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.tokens = 0
        self.sums: dict[str, float] = {}
        self.ratio_max = 0.0

    def add(self, name: str, values: torch.Tensor) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + float(values.sum())

    def metrics(self) -> dict[str, float]:
        count = max(1, self.tokens)
        return {name: total / count for name, total in self.sums.items()} | {"ratio_max": self.ratio_max}


class Learner:
    """Steps and forward passes on one policy's learner weights."""

    def __init__(self, policy: Policy, *, micro_batch_tokens: int) -> None:
        self._policy = policy
        self._budget = micro_batch_tokens
        weights = list(policy.trainable().values())
        self._groups = [[w for w in weights if w.ndim > 1], [w for w in weights if w.ndim <= 1]]
        groups = [{"params": group} for group in self._groups if group]
        self._optimizer = torch.optim.AdamW(groups, lr=0.0) if groups else None

    def state(self) -> dict[str, Any]:
        """Trainable weights and optimizer state."""
        return {
            "weights": {n: p.detach() for n, p in self._policy.trainable().items()},
            "optimizer": self._optimizer_in_use().state_dict(),
        }

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Undo everything since `state`."""
        mine = self._policy.trainable()
        saved = state["weights"]
        if set(mine) != set(saved):
            odd = sorted(set(mine) ^ set(saved))[0]
            raise BackendError(f"the checkpoint has other weights than this model (such as {odd!r})")
        for name, parameter in mine.items():
            parameter.copy_(saved[name])
        self._optimizer_in_use().load_state_dict(state["optimizer"])

    def _optimizer_in_use(self) -> torch.optim.AdamW:
        if self._optimizer is None:
            raise BackendError("the model was opened with trainable=False; it has nothing to train")
        return self._optimizer

    def step(self, rows: Sequence[Row], loss: LossSpec, optimizer: OptimizerSpec) -> StepResult:
        """See `rllm.interfaces.backend.Backend.step`. Weight decay applies to matrices, not to vectors."""
        check(loss)
        references = self._references(rows, loss)
        weights = row_token_weights(rows, loss)
        totals = _Totals()
        adamw = self._optimizer_in_use()
        adamw.zero_grad(set_to_none=True)
        sequences = [Sequence1D(row.ids, row.mask.astype(bool)) for row in rows]
        for batch in pack(sequences, self._budget):
            self._accumulate(rows, batch, loss, weights, references, totals)
        norm = self._gradient_norm()
        if not (math.isfinite(totals.loss) and math.isfinite(norm)):
            adamw.zero_grad(set_to_none=True)
            raise BackendError(
                f"the loss ({totals.loss!r}) or its gradient norm ({norm!r}) is not finite; the weights are unchanged"
            )
        if totals.tokens:
            self._update(adamw, optimizer, norm)
        adamw.zero_grad(set_to_none=True)
        return StepResult(loss=totals.loss, grad_norm=norm, tokens=totals.tokens, metrics=totals.metrics())

    def logprobs(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        """Log-probability of every token but the first, under the learner's weights, at each row's temperature."""
        return self._forward(self._policy.learner, rows)

    def _references(self, rows: Sequence[Row], loss: LossSpec) -> list[NDArray[np.float32]] | None:
        if not loss.params.get("kl_coef"):
            return None
        known = [row.ref_logprobs for row in rows if row.ref_logprobs is not None]
        return known if len(known) == len(rows) else self.reference_logprobs(rows)

    def reference_logprobs(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        """The same under the initial weights."""
        adapted: Any = self._policy.learner
        if self._policy.lora:
            with adapted.disable_adapter():
                return self._forward(self._policy.learner, rows)
        return self._forward(self._policy.reference(), rows)

    @torch.no_grad()
    def _forward(self, model: torch.nn.Module, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        found = [np.zeros(row.ids.size, np.float32) for row in rows]
        sequences = [Sequence1D(row.ids, np.arange(row.ids.size) > 0) for row in rows]
        for batch in pack(sequences, self._budget):
            temperatures = _temperatures(rows, batch)
            logp, _entropy = token_logprobs(model, self._policy.config, batch, temperatures, device=self._policy.device)
            values = logp.cpu().numpy()
            for row in np.unique(batch.rows):
                here = batch.rows == row
                found[row][batch.places[here]] = values[here]
        return found

    def _accumulate(
        self,
        rows: Sequence[Row],
        batch: MicroBatch,
        spec: LossSpec,
        weights: NDArray[np.float64],
        references: list[NDArray[np.float32]] | None,
        totals: _Totals,
    ) -> None:
        """Add the gradient of one micro-batch."""
        device = self._policy.device
        logp, entropy = token_logprobs(
            self._policy.learner, self._policy.config, batch, _temperatures(rows, batch), device=device
        )
        logq = _gather([row.logprobs for row in rows], batch, device)
        advantage = _gather([row.advantages for row in rows], batch, device)
        logref = _gather(references, batch, device) if references is not None else None
        tokens = Tokens(logp, logq, advantage, logref)
        per_token, clipped = token_losses(tokens, spec)
        share = torch.from_numpy(weights[batch.rows].astype(np.float32)).to(device)
        loss = (per_token * share).sum()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        with torch.no_grad():
            totals.loss += float(loss.detach())
            totals.tokens += batch.rows.size
            totals.add("entropy", entropy)
            totals.add("kl_behaviour", tokens.difference.exp() - 1 - tokens.difference)
            totals.ratio_max = max(totals.ratio_max, float(tokens.difference.exp().max()))
            if clipped is not None:
                totals.add("clip_fraction", clipped.float())
            if logref is not None:
                totals.add("kl_reference", k3(logref - logp))

    def _parameters(self) -> Iterator[torch.nn.Parameter]:
        return (p for group in self._groups for p in group if p.grad is not None)

    def _gradient_norm(self) -> float:
        norms = [p.grad.norm() for p in self._parameters() if p.grad is not None]
        return float(torch.stack(norms).norm()) if norms else 0.0

    def _update(self, adamw: torch.optim.AdamW, spec: OptimizerSpec, norm: float) -> None:
        if spec.grad_clip and norm > spec.grad_clip:
            for parameter in self._parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(spec.grad_clip / (norm + 1e-6))
        for group, weights in zip(adamw.param_groups, (g for g in self._groups if g), strict=True):
            decay = spec.weight_decay if weights[0].ndim > 1 else 0.0
            group.update(lr=spec.lr, betas=spec.betas, eps=spec.eps, weight_decay=decay)
        adamw.step()
