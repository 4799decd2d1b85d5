"""An advantage estimator: grouped rewards in, grouped advantages out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Estimator"]


class Estimator(Protocol):
    """A pure function. Group g has shape [n_g] of float64 rewards, all finite, n_g >= 1."""

    def __call__(
        self, rewards: Sequence[NDArray[np.float64]], params: Mapping[str, float]
    ) -> list[NDArray[np.float64]]:
        """One advantage per reward, in groups of the same shapes, all finite. Depends on the order of neither the
        groups nor their members, except that the result is aligned with the argument."""
        ...
