"""The local backend keeps every promise that the kit knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from rllm.testing.backend_fixture import MakeBackend
from rllm.testing.backend_kit import BackendConformance
from rllm_backend_local.backend import LocalBackend


@pytest.mark.slow
class TestLocalBackend(BackendConformance):
    """With a random Llama of 20 thousand parameters."""

    @pytest.fixture(autouse=True)
    def smallest_model(self, model_path: Path) -> None:
        self.model = str(model_path)

    @pytest.fixture
    def make_backend(self, tmp_path: Path) -> MakeBackend:
        return lambda: LocalBackend(cache_dir=tmp_path, cache_mib=64)
