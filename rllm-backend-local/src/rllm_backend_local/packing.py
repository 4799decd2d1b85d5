"""Rows to micro-batches: rows that share a prompt share its tokens, short ones share a line.

A line holds several trees, each one prompt followed by the tails of all rows that begin with it; a tail attends to
its prompt and to itself. A group of sixteen rollouts thus computes its prompt once, and the loss and its gradient
are those of the separate rows. Only numpy here; `learner` makes tensors of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["MicroBatch", "Sequence1D", "pack"]

_LINE_TOKENS = 128
"""Short rows are put together up to about this many tokens; attention costs the square of a line."""


@dataclass(frozen=True, slots=True)
class Sequence1D:
    """One row to be packed: L ids, and which of them are predicted, both of shape [L]."""

    ids: NDArray[np.int32]
    wanted: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """B lines of L tokens, and the N predictions to make on them."""

    ids: NDArray[np.int64]
    """[B, L]"""
    positions: NDArray[np.int64]
    """[B, L]: position in its own row."""
    segments: NDArray[np.int64]
    """[B, L]: a token attends to earlier tokens of its own segment …"""
    parents: NDArray[np.int64]
    """[B, L]: … and of this one."""
    lines: NDArray[np.int64]
    """[N]: line of the token that predicts."""
    sources: NDArray[np.int64]
    """[N]: its place in the line."""
    targets: NDArray[np.int64]
    """[N]: the id to predict."""
    rows: NDArray[np.int64]
    """[N]: whose row that is …"""
    places: NDArray[np.int64]
    """[N]: … and where in it."""


@dataclass(frozen=True, slots=True)
class _Tree:
    """Rows that begin with the same `prompt` tokens."""

    prompt: NDArray[np.int32]
    rows: tuple[int, ...]
    tokens: int


def _trees(sequences: Sequence[Sequence1D], limit: int) -> Iterator[_Tree]:
    groups: dict[bytes, list[int]] = {}
    for index, sequence in enumerate(sequences):
        if sequence.wanted.any():
            start = int(sequence.wanted.argmax())
            groups.setdefault(sequence.ids[:start].tobytes(), []).append(index)
    for members in groups.values():
        start = int(sequences[members[0]].wanted.argmax())
        prompt = sequences[members[0]].ids[:start]
        chosen: list[int] = []
        tokens = start
        for index in members:
            tail = sequences[index].ids.size - start
            if chosen and tokens + tail > limit:
                yield _Tree(prompt, tuple(chosen), tokens)
                chosen, tokens = [], start
            chosen.append(index)
            tokens += tail
        yield _Tree(prompt, tuple(chosen), tokens)


def _fill(trees: Iterable[_Tree], width: int) -> list[list[_Tree]]:
    """Trees into lines of at most `width` tokens: largest first, each into the first line with room."""
    lines: list[list[_Tree]] = []
    room: list[int] = []
    for tree in sorted(trees, key=lambda t: -t.tokens):
        for index, free in enumerate(room):
            if tree.tokens <= free:
                lines[index].append(tree)
                room[index] -= tree.tokens
                break
        else:
            lines.append([tree])
            room.append(width - tree.tokens)
    return lines


def pack(sequences: Sequence[Sequence1D], budget: int) -> list[MicroBatch]:
    """Micro-batches of at most `budget` tokens, padding included (a longer row is a micro-batch of its own).

    The order depends on the rows only.
    """
    lines = _fill(_trees(sequences, min(budget, _LINE_TOKENS)), min(budget, _LINE_TOKENS))
    lines.sort(key=lambda line: -sum(tree.tokens for tree in line))
    batches = []
    while lines:
        width = sum(tree.tokens for tree in lines[0])
        count = max(1, budget // width)
        batches.append(_build(sequences, lines[:count], width))
        lines = lines[count:]
    return batches


def _build(sequences: Sequence[Sequence1D], lines: Sequence[Sequence[_Tree]], width: int) -> MicroBatch:
    shape = (len(lines), width)
    ids, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    segments = np.tile(-1 - np.arange(width), (len(lines), 1))
    parents = segments.copy()
    found: list[NDArray[np.int64]] = []
    for line, trees in enumerate(lines):
        at = segment = 0
        for tree in trees:
            root, start, base = segment, tree.prompt.size, at
            ids[line, at : at + start] = tree.prompt
            positions[line, at : at + start] = np.arange(start)
            segments[line, at : at + start] = parents[line, at : at + start] = root
            at += start
            for row in tree.rows:
                segment += 1
                tail = sequences[row].ids[start:]
                span = slice(at, at + tail.size)
                ids[line, span] = tail
                positions[line, span] = np.arange(start, start + tail.size)
                segments[line, span], parents[line, span] = segment, root
                places = np.flatnonzero(sequences[row].wanted)
                sources = np.where(places == start, base + start - 1, at + places - start - 1)
                targets = sequences[row].ids[places]
                found.append(
                    np.stack([np.full_like(places, line), sources, targets, np.full_like(places, row), places])
                )
                at += tail.size
            segment += 1
    return MicroBatch(ids, positions, segments, parents, *np.concatenate(found, axis=1))
