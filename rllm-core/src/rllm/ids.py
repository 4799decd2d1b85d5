"""Identifiers and seeds. An identifier is opaque: nothing is ever parsed out of one."""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

__all__ = ["RolloutKey", "derive_seed", "new_id"]


class RolloutKey(NamedTuple):
    """Which rollout of which task: the identity by which a run is resumed and grouped."""

    task_id: str
    attempt: int


def new_id(prefix: str) -> str:
    """A fresh identifier such as `call_3f…`, unique for all practical purposes: 128 random bits."""
    return f"{prefix}_{os.urandom(16).hex()}"


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed that depends on every part, and on nothing else (stable across processes)."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        data = str(part).encode("utf-8", "surrogatepass")
        digest.update(f"{type(part).__name__}{len(data)}:".encode() + data)
    return int.from_bytes(digest.digest(), "big") >> 1
