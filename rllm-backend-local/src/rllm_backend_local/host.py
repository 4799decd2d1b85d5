"""What the worker process holds: one opened model with its sampler and learner, and the commands on them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rllm.errors import BackendError, ConfigError
from rllm.interfaces.backend import LossSpec, ModelInfo, OptimizerSpec, Row, StepResult
from rllm_backend_local.fitness import check_fitness
from rllm_backend_local.learner import Learner
from rllm_backend_local.models import model_directory
from rllm_backend_local.options import LocalOptions
from rllm_backend_local.policy import LoraOptions, Policy, pick_device
from rllm_backend_local.sampling import SlotSampler

__all__ = ["Host"]

_SMALL = 20_000_000
"""Models of fewer parameters sample and learn faster with one thread than with two."""
_STATE = "state.pt"


class Host:
    """One model. `sampler` is driven by the worker's loop; the other methods are the backend's commands."""

    def __init__(self, options: LocalOptions, *, model: str, seed: int, trainable: bool) -> None:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        device, dtype = pick_device(options.device, options.dtype)
        torch.set_num_threads(1)
        path = model_directory(model, options.cache_dir)
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True)
        lora = LoraOptions(options.lora_rank, options.lora_alpha, options.target_modules)
        torch.manual_seed(seed)
        self._policy = Policy(path, name=model, device=device, dtype=dtype, trainable=trainable, lora=lora)
        total = sum(p.numel() for p in self._policy.sampler.parameters())
        fitting = 1 if total < _SMALL else len(os.sched_getaffinity(0))
        self._sampler_threads = options.sampler_threads or fitting
        self._learner_threads = options.learner_threads or fitting
        torch.set_num_threads(self._learner_threads)
        check_fitness(self._policy, name=model)
        context = self._context_length(options.context_length, model)
        self.sampler = SlotSampler(
            self._policy.sampler,
            slots=options.max_concurrent,
            context_length=context,
            cache_bytes=options.cache_mib << 20,
            decode=self._decode,
        )
        self._learner = Learner(self._policy, micro_batch_tokens=options.micro_batch_tokens) if trainable else None
        self._budget = options.micro_batch_tokens
        self.info = ModelInfo(
            name=model,
            tokenizer_dir=path,
            context_length=context,
            parameters=total,
            trainable_parameters=sum(p.numel() for p in self._policy.trainable().values()),
            device=device,
            dtype=str(dtype).removeprefix("torch."),
        )
        torch.set_num_threads(self._sampler_threads)

    def _context_length(self, asked: int, model: str) -> int:
        most = int(getattr(self._policy.config.get_text_config(), "max_position_embeddings", 0) or 0)
        if most and asked > most:
            raise ConfigError(f"context_length {asked} is more than the {most} tokens that model {model!r} can hold")
        return asked or min(most or 4096, 8192)

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def _trained(self) -> Learner:
        if self._learner is None:
            raise BackendError("the model was opened with trainable=False; it can only be sampled from")
        return self._learner

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """Run a command with the learner's threads, then go back to the sampler's."""
        commands: dict[str, Callable[..., Any]] = {
            "step": self.step,
            "logprobs": self.logprobs,
            "publish": self.publish,
            "save": self.save,
            "load": self.load,
        }
        torch.set_num_threads(self._learner_threads)
        try:
            return commands[name](*arguments)
        finally:
            torch.set_num_threads(self._sampler_threads)

    def step(self, rows: Sequence[Row], loss: LossSpec, optimizer: OptimizerSpec) -> StepResult:
        """One optimizer step."""
        return self._trained().step(rows, loss, optimizer)

    def logprobs(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        """Forward only."""
        learner = self._learner or Learner(self._policy, micro_batch_tokens=self._budget)
        return learner.logprobs(rows)

    def publish(self) -> int:
        """The sampler's weights become the learner's."""
        self._trained()
        self._policy.publish()
        self.sampler.weights_changed(self.sampler.version + 1)
        return self.sampler.version

    def save(self, path: Path) -> None:
        """Write model directory, tokenizer and training state into the folder `path`."""
        learner = self._trained()
        path.mkdir(parents=True, exist_ok=True)
        self._policy.save_model(path / "model")
        self._tokenizer.save_pretrained(path / "model")
        state = {"version": self.sampler.version, "learner": learner.state(), "random": torch.get_rng_state()}
        torch.save(state, path / _STATE)

    def load(self, path: Path) -> int:
        """Restore what `save` wrote; returns the version, which is then published."""
        learner = self._trained()
        file = path / _STATE
        if not file.is_file():
            raise BackendError(f"there is no {_STATE} in {str(path)!r}; expected a folder that `save` wrote")
        state = torch.load(file, map_location=self._policy.device, weights_only=True)
        learner.restore(state["learner"])
        torch.set_rng_state(state["random"].cpu())
        self._policy.publish()
        self.sampler.weights_changed(int(state["version"]))
        return self.sampler.version
