"""What every training backend promises."""

from __future__ import annotations

from rllm.testing.learner_promises import LearnerPromises
from rllm.testing.sampler_promises import SamplerPromises

__all__ = ["BackendConformance"]


class BackendConformance(SamplerPromises, LearnerPromises):
    """Subclass it, set `model`, and return from the fixture `make_backend` a function that makes the backend.

    The kit trains, so take the smallest model there is; it opens it about thirty times.
    """
