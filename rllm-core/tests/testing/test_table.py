from collections.abc import Callable

import pytest

from rllm.testing import BackendConformance
from rllm.testing.table import TableBackend


class TestConformance(BackendConformance):
    model = "table"

    @pytest.fixture
    def make_backend(self) -> Callable[[], TableBackend]:
        return TableBackend
