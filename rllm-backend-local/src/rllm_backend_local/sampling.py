"""Continuous batching: many requests share each forward pass of the model.

`SlotSampler.step` admits waiting requests to free slots, runs one packed forward pass (the next token of every
running reply, and as much of the waiting prompts as the budget allows) and returns what came of it. It knows
nothing of processes, queues or the event loop; `worker` drives it.

A request gives the same ids and the same log-probability bits whatever else is being sampled; see `slots`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from rllm_backend_local.distribution import Settings, choose, uniforms
from rllm_backend_local.messages import Delta, Finished, Request
from rllm_backend_local.prefixes import Prefix, PrefixStore
from rllm_backend_local.slots import ROW_MULTIPLE, Plan, Segment, SlotCache, key_length, whole

__all__ = ["SlotSampler"]

PROMPT_TOKENS_PER_STEP = 512
_FIRST_CAPACITY = 64


@dataclass(slots=True)
class _Running:
    """A request in a slot."""

    request: Request
    last_position: int
    """Position after which the slot is full: the reply ends with LENGTH."""
    read: int = 0
    """Prompt tokens whose keys and values are in the slot."""
    ready: torch.Tensor | None = None
    """Logits after the prompt, when a stored prompt gave them."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


class SlotSampler:
    """Samples from one model whose attention is `slots.slot_attention`."""

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        slots: int,
        context_length: int,
        cache_bytes: int,
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        """`cache_bytes` bounds keys and values, half of it for running requests and half for stored prompts."""
        self._model = model
        self._context_length = context_length
        self._most_slots = slots
        self._slot_bytes = cache_bytes // 2
        self._decode = decode
        self.version = 0
        self._prefixes = PrefixStore(cache_bytes // 2)
        self._waiting: deque[Request] = deque()
        self._cache = self._new_cache(_FIRST_CAPACITY)
        self._running: list[_Running | None] = [None] * self._cache.slots
        self._new_arrays()

    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do."""
        return bool(self._waiting) or any(self._running)

    def submit(self, request: Request) -> None:
        """Queue a request; prompt and at least one token must fit in the context."""
        self._waiting.append(request)

    def cancel(self, number: int) -> None:
        """Forget a request, wherever it is; unknown numbers are those that just finished."""
        self._waiting = deque(r for r in self._waiting if r.number != number)
        for slot, running in enumerate(self._running):
            if running is not None and running.request.number == number:
                self._running[slot] = None

    def abort(self) -> list[int]:
        """Forget everything; returns the numbers of the requests that were lost."""
        lost = [r.number for r in self._waiting] + [r.request.number for r in self._running if r is not None]
        self._waiting.clear()
        self._running = [None] * self._cache.slots
        return lost

    def weights_changed(self, version: int) -> None:
        """From now on the model's weights are those of `version`; running replies go on with them."""
        self.version = version
        self._prefixes.clear()

    def step(self) -> tuple[list[Finished], list[Delta]]:
        """One forward pass for everything that is running."""
        self._admit()
        segments = self._segments()
        decoding = [slot for slot, run in enumerate(self._running) if run is not None and run.ids]
        ready = [
            (slot, run.ready) for slot, run in enumerate(self._running) if run is not None and run.ready is not None
        ]
        rows: list[torch.Tensor] = []
        slots = list(decoding)
        if decoding or segments:
            logits, finished_prompts = self._forward(decoding, segments)
            slots += finished_prompts
            rows.append(logits[: len(slots)])
        for slot, stored in ready:
            slots.append(slot)
            rows.append(stored[None])
        if not slots:
            return [], []
        return self._record(slots, torch.cat(rows) if len(rows) > 1 else rows[0])

    def _new_cache(self, capacity: int) -> SlotCache:
        text = self._model.config.get_text_config()  # type: ignore[union-attr,operator]  # a transformers model
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        weight = next(self._model.parameters())
        per_slot = text.num_hidden_layers * 2 * heads * capacity * size * weight.element_size()
        return SlotCache(
            layers=text.num_hidden_layers,
            heads=heads,
            head_size=size,
            slots=max(1, min(self._most_slots, self._slot_bytes // per_slot)),
            capacity=capacity,
            dtype=weight.dtype,
            device=str(weight.device),
        )

    def _new_arrays(self) -> None:
        count = self._cache.slots
        self._last_id = np.zeros(count, np.int64)
        self._position = np.zeros(count, np.int64)
        self._drawn = np.zeros(count, np.int64)
        self._temperature = np.zeros(count, np.float32)
        self._top_k = np.zeros(count, np.int64)
        self._top_p = np.ones(count, np.float32)
        self._seed = np.zeros(count, np.uint64)
        self._stop_ids: list[frozenset[int]] = [frozenset()] * count

    def _fit(self, request: Request) -> bool:
        """Make the slots long enough for a request. False while shorter running requests are in the way."""
        needed = min(request.prompt.size + request.max_tokens, self._context_length)
        if needed <= self._cache.capacity:
            return True
        if any(self._running):
            return False
        self._cache = self._new_cache(key_length(needed))
        self._running = [None] * self._cache.slots
        self._new_arrays()
        return True

    def _admit(self) -> None:
        if not self._waiting:
            return
        free = [slot for slot, run in enumerate(self._running) if run is None]
        being_read = {
            run.request.prompt.tobytes() for run in self._running if run and not run.ids and run.ready is None
        }
        later: deque[Request] = deque()
        while self._waiting and free:
            request = self._waiting.popleft()
            known = self._prefixes.find(request.prompt)
            if (known is None or known.tokens < request.prompt.size) and request.prompt.tobytes() in being_read:
                later.append(request)
                continue
            if not self._fit(request):
                later.append(request)
                break
            if len(self._running) != len(free) + sum(run is not None for run in self._running):
                free = [slot for slot, run in enumerate(self._running) if run is None]
            self._place(free.pop(0), request, known)
            if known is None or known.tokens < request.prompt.size:
                being_read.add(request.prompt.tobytes())
        later.extend(self._waiting)
        self._waiting = later

    def _place(self, slot: int, request: Request, known: Prefix | None) -> None:
        size = request.prompt.size
        running = _Running(request, min(size + request.max_tokens, self._context_length) - 1)
        if known is not None:
            self._cache.restore(slot, known.saved, known.tokens)
            running.read = known.tokens
            running.ready = known.logits if known.tokens == size else None
        self._running[slot] = running
        self._position[slot] = size - 1
        self._drawn[slot] = 0
        self._temperature[slot] = request.temperature
        self._top_k[slot] = request.top_k
        self._top_p[slot] = request.top_p
        self._seed[slot] = request.seed
        self._stop_ids[slot] = frozenset(request.stop_ids)

    def _segments(self) -> list[Segment]:
        budget = PROMPT_TOKENS_PER_STEP
        segments = []
        for slot, run in enumerate(self._running):
            if run is None or run.read == run.request.prompt.size:
                continue
            count = min(budget, run.request.prompt.size - run.read)
            if not count:
                break
            segments.append(Segment(slot, run.read, count))
            budget -= count
        return segments

    @torch.inference_mode()
    def _forward(self, decoding: Sequence[int], segments: Sequence[Segment]) -> tuple[torch.Tensor, list[int]]:
        """Logits of the decoding slots, then of the slots whose prompt is now read (these are returned too)."""
        span = decoding[-1] + 1 if decoding else 0
        live = np.zeros(span, bool)
        live[list(decoding)] = True
        plan = Plan(self._cache, self._position[:span], live, segments)
        ids = np.zeros(plan.positions.shape[0], np.int64)
        ids[:span] = np.where(live, self._last_id[:span], 0)
        wanted = list(decoding)
        complete: list[Segment] = []
        row = span
        for segment in segments:
            run = self._run(segment.slot)
            ids[row : row + segment.count] = run.request.prompt[segment.start : segment.start + segment.count]
            row += segment.count
            run.read += segment.count
            if run.read == run.request.prompt.size:
                wanted.append(row - 1)
                complete.append(segment)
        keep = np.zeros(whole(max(len(wanted), 1), ROW_MULTIPLE), np.int64)
        keep[: len(wanted)] = wanted
        device = plan.positions.device
        logits = self._model(
            input_ids=torch.from_numpy(ids).to(device)[None],
            position_ids=plan.positions[None],
            use_cache=False,
            logits_to_keep=torch.from_numpy(keep).to(device),
            rllm_plan=plan,
        ).logits[0]
        for line, segment in enumerate(complete, len(decoding)):
            run = self._run(segment.slot)
            saved = self._cache.snapshot(segment.slot, run.read)
            self._prefixes.add(run.request.prompt, Prefix(run.read, saved, logits[line].clone()))
        return logits, [segment.slot for segment in complete]

    def _run(self, slot: int) -> _Running:
        run = self._running[slot]
        assert run is not None, "only called for slots in use"
        return run

    @torch.inference_mode()
    def _record(self, slots: Sequence[int], logits: torch.Tensor) -> tuple[list[Finished], list[Delta]]:
        at = np.array(slots)
        drawn = uniforms(self._seed[at], self._drawn[at])
        choice = choose(logits, Settings(self._temperature[at], self._top_k[at], self._top_p[at], drawn))
        self._last_id[at] = choice.ids
        self._position[at] += 1
        self._drawn[at] += 1
        finished: list[Finished] = []
        deltas: list[Delta] = []
        for slot, token, logprob in zip(slots, choice.ids.tolist(), choice.logprobs.tolist(), strict=True):
            run = self._run(slot)
            run.ready = None
            run.ids.append(token)
            run.logprobs.append(logprob)
            run.versions.append(self.version)
            if run.request.stream:
                deltas.append(Delta(run.request.number, token))
            stopped = token in self._stop_ids[slot] or self._has_stop_text(run)
            if stopped or self._position[slot] >= run.last_position:
                self._running[slot] = None
                finished.append(
                    Finished(
                        run.request.number,
                        np.array(run.ids, np.int32),
                        np.array(run.logprobs, np.float32),
                        np.array(run.versions, np.int32),
                        stopped,
                    )
                )
        return finished, deltas

    def _has_stop_text(self, run: _Running) -> bool:
        if not run.request.stop:
            return False
        text = self._decode(run.ids)
        return any(stop in text for stop in run.request.stop)
