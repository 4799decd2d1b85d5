"""Attention over slots: the key/value cache of the sampler, and how a packed forward pass reads it.

A forward pass has one packed row of T tokens from many sequences. `SlotCache` holds keys and values by slot;
`Plan` says which token belongs to which slot and position, and groups tokens into blocks that one attention call
serves. transformers' models call `slot_attention` through their attention interface, as its own continuous batching
does, so every architecture that goes through that interface works and none is named here.

What a token attends to depends on its own sequence only: the key length that it is computed at is a function of its
position, and chunks of a prompt are padded to whole multiples of `CHUNK_ROWS`. On the CPU in float32 this makes a
sequence's numbers independent, bit for bit, of what else is in the batch (`tests/test_sampling.py` holds it to it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention

from rllm.errors import ModelError

__all__ = ["CHUNK_ROWS", "Plan", "Segment", "SlotCache", "key_length", "register", "slot_attention"]

ATTENTION = "rllm_slots"
"""Name under which transformers knows `slot_attention`."""
CHUNK_ROWS = 8
"""Query rows of a prompt chunk are padded to a multiple of this; one lone row would take another code path."""
ROW_MULTIPLE = 4
"""Packed rows are padded to a multiple of this: matrix products of fewer rows take another code path, and vectorised
kernels have no remainder. More would cost a lone request of a large model dearly."""
_SHORTEST = 32


def key_length(tokens: int) -> int:
    """Number of cached positions that an attention over `tokens` positions reads: a power of two, at least 32."""
    return max(_SHORTEST, 1 << (tokens - 1).bit_length())


def whole(count: int, multiple: int) -> int:
    """`count` rounded up to a multiple of `multiple`."""
    return -(-count // multiple) * multiple


class SlotCache:
    """Keys and values of `slots` sequences (and one more slot into which padding writes).

    `data` has shape [layers, 2, slots + 1, key-value heads, capacity, head size].
    """

    def __init__(
        self,
        *,
        layers: int,
        heads: int,
        head_size: int,
        slots: int,
        capacity: int,
        dtype: torch.dtype,
        device: str,
    ) -> None:
        self.slots = slots
        self.capacity = capacity
        self.data = torch.zeros(
            (layers, 2, slots + 1, heads, capacity, head_size), dtype=dtype, device=torch.device(device)
        )

    def snapshot(self, slot: int, tokens: int) -> torch.Tensor:
        """A copy of the first `tokens` positions of a slot."""
        return self.data[:, :, slot, :, :tokens].clone()

    def restore(self, slot: int, saved: torch.Tensor, tokens: int) -> None:
        """Put the first `tokens` positions of a snapshot into a slot."""
        self.data[:, :, slot, :, :tokens] = saved[:, :, :, :tokens]


@dataclass(frozen=True, slots=True)
class Segment:
    """`count` consecutive prompt tokens of one slot, from position `start` on."""

    slot: int
    start: int
    count: int


@dataclass(slots=True)
class _Block:
    """Tokens that share one attention call: [sequences, rows] tokens against [sequences, keys]."""

    rows: torch.Tensor | slice
    """Packed row of each token; padding rows point at the last packed row. A slice when they lie in order."""
    slots: torch.Tensor | slice
    width: int
    """Token rows per sequence."""
    keys: int
    positions: torch.Tensor
    """Shape [sequences, rows]."""
    biases: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)

    def bias(self, window: int, groups: int, dtype: torch.dtype) -> torch.Tensor:
        """Additive mask [sequences, 1, rows * groups, keys]; `window` 0 means no sliding window."""
        known = self.biases.get((window, groups))
        if known is None:
            key = torch.arange(self.keys, device=self.positions.device)
            seen = key <= self.positions[:, :, None]
            if window:
                seen &= key > self.positions[:, :, None] - window
            known = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
            known = known.repeat_interleave(groups, dim=1)[:, None]
            self.biases[window, groups] = known
        return known


class Plan:
    """Where each of the T packed tokens goes and what it attends to.

    The first `decoding` rows are one token each of slots 0, 1, …; the prompt segments follow; padding ends it.
    """

    def __init__(
        self,
        cache: SlotCache,
        positions: NDArray[np.int64],
        live: NDArray[np.bool_],
        segments: Sequence[Segment],
    ) -> None:
        """`positions` and `live`, shape [decoding], are of the slots from 0 on; dead ones are computed in vain."""
        self._cache = cache
        decoding = len(positions)
        total = whole(decoding + sum(s.count for s in segments), ROW_MULTIPLE)
        slot_T = np.full(total, cache.slots, np.int64)
        position_T = np.zeros(total, np.int64)
        slot_T[:decoding] = np.where(live, np.arange(decoding), cache.slots)
        position_T[:decoding] = np.where(live, positions, 0)
        starts: list[int] = []
        row = decoding
        for segment in segments:
            starts.append(row)
            slot_T[row : row + segment.count] = segment.slot
            position_T[row : row + segment.count] = np.arange(segment.start, segment.start + segment.count)
            row += segment.count
        device = cache.data.device
        self.positions = torch.from_numpy(position_T).to(device)
        self._slots = torch.from_numpy(slot_T).to(device)
        self._blocks = [
            *self._decode_blocks(position_T[:decoding], live),
            *self._prompt_blocks(segments, starts),
        ]
        self._last_row = total - 1

    def _decode_blocks(self, positions: NDArray[np.int64], live: NDArray[np.bool_]) -> list[_Block]:
        if not live.any():
            return []
        device = self._cache.data.device
        lengths = np.array([key_length(p + 1) for p in positions.tolist()])
        wanted = sorted(set(lengths[live].tolist()))
        if len(wanted) == 1:
            rows = slice(0, len(positions))
            at = torch.from_numpy(positions[:, None].copy()).to(device)
            return [_Block(rows, rows, 1, wanted[0], at)]
        blocks = []
        for keys in wanted:
            index = np.flatnonzero(live & (lengths == keys))
            rows_here = torch.from_numpy(index).to(device)
            at = torch.from_numpy(positions[index][:, None]).to(device)
            blocks.append(_Block(rows_here, rows_here, 1, keys, at))
        return blocks

    def _prompt_blocks(self, segments: Sequence[Segment], starts: Sequence[int]) -> list[_Block]:
        device = self._cache.data.device
        kinds: dict[tuple[int, int], list[int]] = {}
        for index, segment in enumerate(segments):
            shape = (whole(segment.count, CHUNK_ROWS), key_length(segment.start + segment.count))
            kinds.setdefault(shape, []).append(index)
        blocks = []
        for (width, keys), members in kinds.items():
            rows = np.full((len(members), width), -1, np.int64)
            at = np.zeros((len(members), width), np.int64)
            for line, index in enumerate(members):
                count = segments[index].count
                rows[line, :count] = np.arange(starts[index], starts[index] + count)
                at[line] = np.minimum(segments[index].start + np.arange(width), keys - 1)
            slots = torch.tensor([segments[index].slot for index in members], device=device)
            blocks.append(
                _Block(
                    torch.from_numpy(rows.ravel()).to(device),
                    slots,
                    width,
                    keys,
                    torch.from_numpy(at).to(device),
                )
            )
        return blocks

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        window: int,
    ) -> torch.Tensor:
        """Store key and value [1, KV, T, D] of `layer`, attend with query [1, H, T, D]; returns [1, T, H, D]."""
        keys, values = self._cache.data[layer, 0], self._cache.data[layer, 1]
        keys[self._slots, :, self.positions] = key[0].transpose(0, 1)
        values[self._slots, :, self.positions] = value[0].transpose(0, 1)
        heads, total, size = query.shape[1:]
        groups = heads // key.shape[1]
        query_T = query[0].transpose(0, 1)
        result = query.new_zeros((total, heads, size))
        for block in self._blocks:
            packed = query_T[block.rows].reshape(-1, block.width, heads // groups, groups, size)
            asked = packed.permute(0, 2, 1, 3, 4).reshape(-1, heads // groups, block.width * groups, size)
            found = scaled_dot_product_attention(
                asked,
                keys[block.slots, :, : block.keys],
                values[block.slots, :, : block.keys],
                attn_mask=block.bias(window, groups, query.dtype),
                scale=scale,
            )
            rows = found.reshape(-1, heads // groups, block.width, groups, size).permute(0, 2, 1, 3, 4)
            self._scatter(result, block, rows.reshape(-1, heads, size))
        return result[None]

    @staticmethod
    def _scatter(result: torch.Tensor, block: _Block, rows: torch.Tensor) -> None:
        if isinstance(block.rows, slice):
            result[block.rows] = rows
        else:
            real = block.rows >= 0
            result[block.rows[real]] = rows[real]


def slot_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    rllm_plan: Plan | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention interface. What `unused` would change shows up when the sampler checks the model."""
    if rllm_plan is None:
        raise ModelError("the model's layers do not pass keyword arguments to attention; it cannot be sampled from")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer = int(module.layer_idx)  # type: ignore[arg-type]  # torch types attributes as Tensor | Module
    return rllm_plan.attend(layer, query, key, value, scale, sliding_window or 0), None


def register() -> str:
    """Make `slot_attention` known to transformers; returns the name to give as `attn_implementation`."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, slot_attention)
    return ATTENTION
