"""A grader: turns a finished episode into a reward."""

from __future__ import annotations

from typing import Protocol

from rllm.types import Episode, EvalOutput, Task

__all__ = ["Grader"]


class Grader(Protocol):
    """Pure: the same episode always gets the same reward, and nothing that the model wrote is executed."""

    def grade(self, task: Task, episode: Episode) -> EvalOutput:
        """Reward the episode. `task` has its reference. Raise when no reward can be determined: the episode is then
        `ungraded`, never 0."""
        ...
