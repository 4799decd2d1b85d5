"""The weights: the model that learns, the copy that samples, and what carries one over to the other.

The copy shares every weight that does not change, so a LoRA run holds its base once. With LoRA the copy has the
adapters merged into it.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rllm.errors import ConfigError, ModelError, boundary
from rllm_backend_local import slots

__all__ = ["LoraOptions", "Policy", "load_model", "pick_device"]


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """Low-rank adaptation; `rank` 0 trains every weight."""

    rank: int = 0
    alpha: float = 16.0
    target_modules: tuple[str, ...] = ()
    """Empty: every linear layer but the output."""


def pick_device(device: str, dtype: str) -> tuple[str, torch.dtype]:
    """Resolve `auto`. Raises `ConfigError` for a device that is not there."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device {device!r} was asked for, but torch sees no CUDA device; use device=cpu")
    if dtype == "auto":
        half = device.startswith("cuda") and torch.cuda.is_bf16_supported()
        dtype = "bfloat16" if half else "float32"
    return device, torch.bfloat16 if dtype == "bfloat16" else torch.float32


def load_model(path: Path, *, name: str, dtype: torch.dtype, device: str) -> torch.nn.Module:
    """The causal language model in the directory `path`. Raises `ModelError`."""
    from transformers import AutoModelForCausalLM

    with boundary(ModelError, f"model {name!r}"):
        model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, local_files_only=True)
    return model.to(device).eval()


class Policy:
    """One model twice: `learner` (None when nothing is to be trained) and `sampler`."""

    def __init__(
        self, path: Path, *, name: str, device: str, dtype: torch.dtype, trainable: bool, lora: LoraOptions
    ) -> None:
        self.device = device
        self.dtype = dtype
        self._path, self._name = path, name
        self._lora = lora.rank > 0 and trainable
        self._adapter_kind: type[torch.nn.Module] = torch.nn.Module
        held = torch.float32 if trainable and not self._lora else dtype
        self.base = load_model(path, name=name, dtype=held, device=device)
        self.config: Any = self.base.config
        changing = set() if not trainable else self._changing(lora)
        shared = {id(p): p for n, p in self.base.named_parameters() if n not in changing}
        self.sampler = copy.deepcopy(self.base, dict(shared)).to(dtype)
        self.sampler.set_attn_implementation(slots.register())  # type: ignore[operator]  # a transformers model
        self.sampler.requires_grad_(False)
        self.learner: torch.nn.Module = self._adapt(lora) if self._lora else self.base
        self.learner.requires_grad_(trainable) if not self._lora else None
        self._reference: torch.nn.Module | None = None

    @property
    def lora(self) -> bool:
        """Whether only adapters are trained."""
        return self._lora

    def trainable(self) -> dict[str, torch.nn.Parameter]:
        """The weights that training changes, by name."""
        return {n: p for n, p in self.learner.named_parameters() if p.requires_grad}

    def _targets(self, lora: LoraOptions) -> list[str]:
        output = self.base.get_output_embeddings()  # type: ignore[operator]  # a transformers model
        wanted = lora.target_modules
        return [
            name
            for name, module in self.base.named_modules()
            if isinstance(module, torch.nn.Linear)
            and module is not output
            and (not wanted or name.rpartition(".")[2] in wanted)
        ]

    def _changing(self, lora: LoraOptions) -> set[str]:
        if not self._lora:
            return {name for name, _ in self.base.named_parameters()}
        found = self._targets(lora)
        if not found:
            kinds = sorted({n.rpartition(".")[2] for n in self._targets(LoraOptions())})
            raise ConfigError(
                f"target_modules {list(lora.target_modules)!r} match no linear layer; there are {', '.join(kinds)}"
            )
        return {f"{name}.weight" for name in found}

    def _adapt(self, lora: LoraOptions) -> torch.nn.Module:
        from peft import LoraConfig, get_peft_model
        from peft.tuners.lora import Linear

        self._adapter_kind = Linear
        config = LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            target_modules=self._targets(lora),
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers for names that will go
            adapted: torch.nn.Module = get_peft_model(self.base, config)
        return adapted.eval()

    @torch.no_grad()
    def publish(self) -> None:
        """Make the sampler's weights those of the learner."""
        if self._lora:
            for name, weight in self._merged().items():
                self.sampler.get_parameter(name).copy_(weight)
            return
        for mine, theirs in zip(self.sampler.parameters(), self.learner.parameters(), strict=True):
            if mine is not theirs:
                mine.copy_(theirs)

    def _merged(self) -> dict[str, torch.Tensor]:
        """Each adapted weight with its adapter merged in, by its name in the base model."""
        merged = {}
        for name, module in self.learner.named_modules():
            layer: Any = module
            if isinstance(module, self._adapter_kind):
                delta = layer.get_delta_weight("default").to(self.dtype)
                merged[f"{name.removeprefix('base_model.model.')}.weight"] = layer.base_layer.weight + delta
        return merged

    def reference(self) -> torch.nn.Module:
        """The initial weights, loaded when first asked for."""
        if self._reference is None:
            self._reference = load_model(self._path, name=self._name, dtype=self.dtype, device=self.device)
            self._reference.requires_grad_(False)
        return self._reference

    @torch.no_grad()
    def save_model(self, path: Path) -> None:
        """Write an ordinary model directory (adapters merged) that holds the learner's weights."""
        if self._lora:
            weights = self.sampler.state_dict() | self._merged()
            self.sampler.save_pretrained(path, state_dict=weights)  # type: ignore[operator]  # a transformers model
        else:
            self.learner.save_pretrained(path)  # type: ignore[operator]  # a transformers model
