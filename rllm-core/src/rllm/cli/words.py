"""Telling a benchmark's name from `key=value` words."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["split_target"]


def split_target(first: str | None, rest: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """(benchmark or None, overrides): the first word is a benchmark unless it is `key=value`."""
    if first is not None and "=" in first:
        return None, (first, *rest)
    return first, tuple(rest)
