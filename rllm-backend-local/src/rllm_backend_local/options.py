"""The options of the local backend, checked before any process is started. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rllm.errors import ConfigError

__all__ = ["LocalOptions", "default_cache"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """See `LocalBackend` for what each means."""

    device: str
    dtype: str
    lora_rank: int
    lora_alpha: float
    target_modules: tuple[str, ...]
    micro_batch_tokens: int
    max_concurrent: int
    context_length: int
    cache_mib: int
    sampler_threads: int
    learner_threads: int
    cache_dir: Path

    def __post_init__(self) -> None:
        if faults := list(self._faults()):
            raise ConfigError(*faults)

    def _faults(self) -> Iterator[str]:
        if not (self.device in ("auto", "cpu", "cuda") or self.device.startswith("cuda:")):
            yield f"device {self.device!r} is not one of auto, cpu, cuda, cuda:N"
        if self.dtype not in ("auto", "float32", "bfloat16"):
            yield f"dtype {self.dtype!r} is not one of auto, float32, bfloat16"
        for name in ("lora_rank", "context_length", "sampler_threads", "learner_threads"):
            if getattr(self, name) < 0:
                yield f"{name} must not be negative, got {getattr(self, name)!r}"
        for name in ("lora_alpha", "micro_batch_tokens", "max_concurrent", "cache_mib"):
            if getattr(self, name) <= 0:
                yield f"{name} must be above 0, got {getattr(self, name)!r}"
        if self.target_modules and not self.lora_rank:
            yield f"target_modules {list(self.target_modules)!r} need a lora_rank above 0"


def default_cache() -> Path:
    """`RLLM_CACHE`, else `~/.cache/rllm`: converted and embedded models, which can always be made again."""
    return Path(os.environ.get("RLLM_CACHE") or "~/.cache/rllm").expanduser()
