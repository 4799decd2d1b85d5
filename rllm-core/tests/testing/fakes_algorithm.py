"""Estimators that break one promise each."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from rllm.testing import AlgorithmConformance
from rllm.testing.examples.algorithm import example


class TestGood(AlgorithmConformance):
    @pytest.fixture
    def estimator(self) -> Any:
        return self.estimate

    def estimate(self, rewards: Any, params: Any) -> Any:
        return example(rewards, params)


class TestOtherShape(TestGood):
    def estimate(self, rewards: Any, params: Any) -> Any:
        return [each.reshape(8, 1) if each.size == 8 else each for each in example(rewards, params)]


class TestNotFinite(TestGood):
    def estimate(self, rewards: Any, params: Any) -> Any:
        return [
            np.full_like(group, np.nan) if group.size > 1 and np.ptp(group) == 0 else group - group.mean()
            for group in rewards
        ]


class TestRefusesOne(TestGood):
    def estimate(self, rewards: Any, params: Any) -> Any:
        if any(group.size == 1 for group in rewards):
            raise ValueError("a group needs two members")
        return example(rewards, params)


class TestChangesRewards(TestGood):
    def estimate(self, rewards: Any, params: Any) -> Any:
        for group in rewards:
            group -= group.mean()
        return [group.copy() for group in rewards]


class TestRemembers(TestGood):
    count = itertools.count()

    def estimate(self, rewards: Any, params: Any) -> Any:
        drift = 1e-12 * next(self.count)
        return [each + drift for each in example(rewards, params)]


class TestSeesGroupOrder(TestGood):
    def estimate(self, rewards: Any, params: Any) -> Any:
        return [each + index for index, each in enumerate(example(rewards, params))]


class TestSeesMemberOrder(TestGood):
    def estimate(self, rewards: Any, params: Any) -> Any:
        return [each + np.arange(each.size) for each in example(rewards, params)]
