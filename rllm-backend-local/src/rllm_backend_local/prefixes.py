"""Prompts already read: keys, values and last logits, so that a group of rollouts reads its prompt once."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Prefix", "PrefixStore"]


@dataclass(frozen=True, slots=True)
class Prefix:
    """One prompt of `tokens` tokens."""

    tokens: int
    saved: torch.Tensor
    """As `SlotCache.snapshot` gives it."""
    logits: torch.Tensor
    """Of the token after the prompt, shape [V]."""

    @property
    def size_bytes(self) -> int:
        """Memory that it holds."""
        return self.saved.nbytes + self.logits.nbytes


class PrefixStore:
    """Least recently used prompts, up to `limit_bytes`. Valid for one set of weights: `clear` after each update."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._entries: OrderedDict[bytes, Prefix] = OrderedDict()
        self._lengths: Counter[int] = Counter()

    def find(self, prompt: NDArray[np.int32]) -> Prefix | None:
        """The longest known prompt that `prompt` starts with or is."""
        for tokens in sorted((n for n in self._lengths if n <= prompt.size), reverse=True):
            key = prompt[:tokens].tobytes()
            if (entry := self._entries.get(key)) is not None:
                self._entries.move_to_end(key)
                return entry
        return None

    def add(self, prompt: NDArray[np.int32], prefix: Prefix) -> None:
        """Remember a prompt, and forget the least recently used ones that no longer fit."""
        key = prompt.tobytes()
        if key in self._entries or prefix.size_bytes > self._limit_bytes:
            return
        self._entries[key] = prefix
        self._lengths[prefix.tokens] += 1
        self._held_bytes += prefix.size_bytes
        while self._held_bytes > self._limit_bytes:
            _, old = self._entries.popitem(last=False)
            self._held_bytes -= old.size_bytes
            self._lengths[old.tokens] -= 1
            if not self._lengths[old.tokens]:
                del self._lengths[old.tokens]

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._lengths.clear()
        self._held_bytes = 0
