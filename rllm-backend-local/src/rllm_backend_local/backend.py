"""The local backend: samples and learns in a process of its own on this machine.

This side only sends and receives; torch is never imported here. What happens there is in `host`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rllm.errors import BackendError, ContextOverflow
from rllm.interfaces.backend import Capabilities, LossSpec, ModelInfo, OptimizerSpec, Row, StepResult
from rllm.interfaces.sampler import DeltaListener, Sample, SamplingParams
from rllm.types import FinishReason
from rllm_backend_local.messages import Request
from rllm_backend_local.options import LocalOptions, default_cache
from rllm_backend_local.process import WorkerProcess

__all__ = ["LocalBackend", "LocalSampler"]

_CAPABILITIES = Capabilities(
    losses=frozenset({"cross_entropy", "importance_sampling", "policy_gradient", "ppo_clip"}),
    aggregations=frozenset({"constant", "seq-mean-token-mean", "seq-mean-token-sum", "token-mean"}),
    per_token_advantages=True,
    kl=True,
    lora=True,
    full=True,
    forward_only=True,
    deterministic=True,
    schedules=frozenset({"constant", "cosine", "linear"}),
)


class LocalSampler:
    """Samples from the published weights; see `rllm.interfaces.sampler.Sampler`."""

    def __init__(self, worker: WorkerProcess, context_length: int) -> None:
        self._worker = worker
        self._context_length = context_length

    @property
    def context_length(self) -> int:
        """Largest number of tokens of prompt and reply together."""
        return self._context_length

    async def sample(
        self, prompt_ids: NDArray[np.int32], params: SamplingParams, *, on_delta: DeltaListener | None = None
    ) -> Sample:
        """Sample one reply. Raises `ContextOverflow` and `BackendError`."""
        if prompt_ids.size < 1 or params.max_tokens < 1:
            raise BackendError(
                f"expected a prompt and max_tokens of at least 1, got {prompt_ids.size} and {params.max_tokens}"
            )
        if prompt_ids.size + 1 > self._context_length:
            raise ContextOverflow(
                f"the prompt has {prompt_ids.size} tokens; with at least one of reply it must fit into the model's "
                f"context of {self._context_length}"
            )
        seed = secrets.randbits(64) if params.seed is None else params.seed % 2**64
        request = Request(
            0,
            np.ascontiguousarray(prompt_ids, np.int32),
            params.max_tokens,
            params.temperature,
            params.top_p,
            params.top_k,
            params.stop,
            params.stop_ids,
            seed,
            on_delta is not None,
        )

        def tell(ids: list[int]) -> None:
            if on_delta is not None:
                on_delta(np.array(ids, np.int32))

        done = await self._worker.sample(request, tell if on_delta is not None else None)
        reason = FinishReason.STOP if done.stopped else FinishReason.LENGTH
        return Sample(ids=done.ids, logprobs=done.logprobs, versions=done.versions, finish_reason=reason)


class LocalBackend:
    """Trains and samples on this machine's CPU or its one GPU."""

    def __init__(
        self,
        *,
        device: str = "auto",
        dtype: str = "auto",
        lora_rank: int = 0,
        lora_alpha: float = 16.0,
        target_modules: Sequence[str] = (),
        micro_batch_tokens: int = 8192,
        max_concurrent: int = 256,
        context_length: int = 0,
        cache_mib: int = 2048,
        sampler_threads: int = 0,
        learner_threads: int = 0,
        cache_dir: str | Path | None = None,
    ) -> None:
        """Check the options; nothing is started before `open`. Raises `ConfigError`.

        * `device`: auto, cpu or cuda. `dtype`: auto (bfloat16 on a GPU that has it, else float32), float32, bfloat16.
        * `lora_rank`: above 0 trains adapters of that rank on `target_modules` (last parts of module names; empty:
          every linear layer but the output), scaled by `lora_alpha / lora_rank`.
        * `micro_batch_tokens`: largest forward and backward pass of the learner; changes memory, not the gradient.
        * `max_concurrent`: most requests that are sampled at once; the others wait.
        * `context_length`: 0 means the model's own, at most 8192.
        * `cache_mib`: memory for keys and values, half of it for prompts that may come again.
        * `sampler_threads`, `learner_threads`: 0 chooses by the model's size and the machine's cores.
        * `cache_dir`: where embedded and converted models are kept; default `RLLM_CACHE` or `~/.cache/rllm`.
        """
        self._options = LocalOptions(
            device=device,
            dtype=dtype,
            lora_rank=lora_rank,
            lora_alpha=lora_alpha,
            target_modules=tuple(target_modules),
            micro_batch_tokens=micro_batch_tokens,
            max_concurrent=max_concurrent,
            context_length=context_length,
            cache_mib=cache_mib,
            sampler_threads=sampler_threads,
            learner_threads=learner_threads,
            cache_dir=Path(cache_dir).expanduser() if cache_dir is not None else default_cache(),
        )
        self._worker: WorkerProcess | None = None
        self._sampler: LocalSampler | None = None
        self._version = 0

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can honour."""
        return _CAPABILITIES

    @property
    def sampler(self) -> LocalSampler:
        """Samples from the published weights."""
        if self._sampler is None:
            raise BackendError("the local backend is not open")
        return self._sampler

    @property
    def version(self) -> int:
        """The published weight version."""
        return self._version

    @property
    def worker_pid(self) -> int:
        """Process id of the worker, for diagnosis."""
        return self._open_worker().pid

    async def open(self, *, model: str, seed: int, trainable: bool = True) -> ModelInfo:
        """Start the worker and load the model there. Raises `ModelError`."""
        await self.close()
        self._worker = WorkerProcess()
        await self._worker.start()
        info: ModelInfo = await self._worker.call("open", self._options, model, seed, trainable)
        self._sampler = LocalSampler(self._worker, info.context_length)
        self._version = 0
        return info

    async def step(self, rows: Sequence[Row], loss: LossSpec, optimizer: OptimizerSpec) -> StepResult:
        """One optimizer step on all rows."""
        result: StepResult = await self._open_worker().call("step", list(rows), loss, optimizer)
        return result

    async def logprobs(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        """Log-probabilities under the learner's weights, forward only."""
        result: list[NDArray[np.float32]] = await self._open_worker().call("logprobs", list(rows))
        return result

    async def publish(self) -> int:
        """Make the sampler use the learner's weights."""
        self._version = int(await self._open_worker().call("publish"))
        return self._version

    async def save(self, path: Path) -> None:
        """Write everything that training needs to go on into the new folder `path`."""
        await self._open_worker().call("save", Path(path))

    async def load(self, path: Path) -> None:
        """Restore what `save` wrote and publish it under the saved version."""
        self._version = int(await self._open_worker().call("load", Path(path)))

    async def close(self) -> None:
        """End the worker; idempotent."""
        worker, self._worker, self._sampler = self._worker, None, None
        if worker is not None:
            await worker.close()

    def _open_worker(self) -> WorkerProcess:
        if self._worker is None:
            raise BackendError("the local backend is not open")
        return self._worker
