"""Micro-batches hold every prediction once, within the budget, and share prompts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rllm_backend_local.packing import Sequence1D, pack


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 400))
def test_every_prediction_is_made_once_from_its_own_context(seed: int, budget: int) -> None:
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, 5, rng.integers(1, 6)) for _ in range(3)]
    sequences = []
    for _ in range(rng.integers(1, 12)):
        prompt = prompts[rng.integers(3)]
        ids = np.concatenate([prompt, rng.integers(0, 5, rng.integers(0, 30))]).astype(np.int32)
        wanted = (np.arange(ids.size) >= prompt.size) & (rng.random(ids.size) < 0.8)
        sequences.append(Sequence1D(ids, wanted))
    made = set()
    for batch in pack(sequences, budget):
        assert batch.ids.size <= budget or batch.ids.shape[0] == 1
        for line, source, target, row, place in zip(
            batch.lines, batch.sources, batch.targets, batch.rows, batch.places, strict=True
        ):
            segments, parents = batch.segments[line], batch.parents[line]
            seen = (segments == segments[source]) | (segments == parents[source])
            seen &= np.arange(segments.size) <= source
            assert batch.ids[line][seen].tolist() == sequences[row].ids[:place].tolist()
            assert batch.positions[line][seen].tolist() == list(range(place))
            assert target == sequences[row].ids[place]
            assert (row, place) not in made
            made.add((row, place))
    assert made == {(r, p) for r, s in enumerate(sequences) for p in np.flatnonzero(s.wanted)}


def test_a_group_computes_its_prompt_once() -> None:
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 9, 14)
    rows = []
    for _ in range(16):
        ids = np.concatenate([prompt, rng.integers(0, 9, 6)]).astype(np.int32)
        rows.append(Sequence1D(ids, np.arange(20) >= 14))
    (batch,) = pack(rows, 8192)
    assert batch.ids.size == 14 + 16 * 6
