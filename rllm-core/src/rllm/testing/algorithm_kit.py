"""What every advantage estimator promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from rllm.interfaces.algorithm import Estimator
from rllm.testing.promise import Kit, fill_in

__all__ = ["AlgorithmConformance"]

Groups = list[NDArray[np.float64]]


class AlgorithmConformance(Kit):
    """Subclass it, return the estimator from the fixture `estimator`, and set `params` if it needs any."""

    params: Mapping[str, float] = {}
    tolerance = 1e-9
    """Relative, for results that may be summed in another order."""

    @pytest.fixture
    def estimator(self) -> Estimator:
        """The function under test."""
        fill_in("estimator", "AlgorithmConformance", "the estimator")

    def groups(self) -> Groups:
        """Rewards that the promises are tried on: several sizes, ties, signs and scales."""
        random = np.random.default_rng(7)
        return [
            np.array([0.0, 1.0, 1.0, 0.0]),
            random.normal(size=5),
            np.array([-2.5, 3.5, 0.25]),
            random.uniform(0, 1, size=8),
        ]

    def test_gives_one_advantage_per_reward(self, estimator: Estimator) -> None:
        groups = self.groups()
        found = estimator(groups, self.params)
        assert [each.shape for each in found] == [each.shape for each in groups], (
            "shapes of advantages and rewards differ"
        )

    def test_is_finite_where_rewards_are(self, estimator: Estimator) -> None:
        hard = [np.zeros(4), np.ones(3), np.array([1e6, -1e6, 0.0]), np.array([1e-9, 2e-9])]
        for advantages in estimator(hard, self.params):
            assert np.isfinite(advantages).all(), f"not finite: {advantages!r}"

    def test_copes_with_a_group_of_one(self, estimator: Estimator) -> None:
        (advantages,) = estimator([np.array([1.0])], self.params)
        assert advantages.shape == (1,), f"expected one advantage, got {advantages!r}"
        assert np.isfinite(advantages).all(), f"not finite: {advantages!r}"

    def test_leaves_the_rewards_alone(self, estimator: Estimator) -> None:
        groups = self.groups()
        estimator(groups, self.params)
        for before, after in zip(self.groups(), groups, strict=True):
            assert np.array_equal(before, after), "the estimator changed its argument"

    def test_is_a_pure_function(self, estimator: Estimator) -> None:
        first = estimator(self.groups(), self.params)
        again = estimator(self.groups(), self.params)
        for a, b in zip(first, again, strict=True):
            assert np.array_equal(a, b), "two calls with the same rewards differ"

    def test_does_not_depend_on_the_order_of_groups(self, estimator: Estimator) -> None:
        groups = self.groups()
        straight = estimator(groups, self.params)
        turned = estimator(groups[::-1], self.params)[::-1]
        self._same(straight, turned, "reversing the groups changed an advantage")

    def test_does_not_depend_on_the_order_within_a_group(self, estimator: Estimator) -> None:
        groups = self.groups()
        straight = estimator(groups, self.params)
        turned = [each[::-1] for each in estimator([each[::-1].copy() for each in groups], self.params)]
        self._same(straight, turned, "reversing a group changed the advantage of a reward")

    def _same(self, a: Sequence[NDArray[np.float64]], b: Sequence[NDArray[np.float64]], why: str) -> None:
        for one, other in zip(a, b, strict=True):
            assert np.allclose(one, other, rtol=self.tolerance, atol=self.tolerance), why
