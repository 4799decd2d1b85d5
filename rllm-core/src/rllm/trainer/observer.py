"""What a training run tells while it goes on. The command line shows it; a program may do anything with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from rllm.engine.statistics import Summary
from rllm.interfaces.backend import ModelInfo
from rllm.types import Episode

__all__ = ["Silent", "TrainObserver"]


class TrainObserver(Protocol):
    """Called in the event loop; must return at once."""

    def opened(self, info: ModelInfo, *, step: int, steps: int) -> None:
        """The model is loaded; training starts after `step` of `steps`."""
        ...

    def rollouts(self, *, what: str, total: int) -> None:
        """A batch of `total` rollouts begins: `train` or `validation`."""
        ...

    def rollout(self, episode: Episode) -> None:
        """One of them has finished."""
        ...

    def stepped(self, step: int, metrics: Mapping[str, float]) -> None:
        """The learner has taken step `step`, counted from 1."""
        ...

    def validated(self, step: int, summary: Summary) -> None:
        """A validation after `step` steps has ended."""
        ...

    def saved(self, step: int, path: Path) -> None:
        """A checkpoint was written."""
        ...

    def note(self, text: str) -> None:
        """One line that a person should read."""
        ...


class Silent:
    """Tells nobody."""

    def opened(self, info: ModelInfo, *, step: int, steps: int) -> None: ...

    def rollouts(self, *, what: str, total: int) -> None: ...

    def rollout(self, episode: Episode) -> None: ...

    def stepped(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def validated(self, step: int, summary: Summary) -> None: ...

    def saved(self, step: int, path: Path) -> None: ...

    def note(self, text: str) -> None: ...
