"""Real agents against the gateway: a scripted model that writes tool calls, and programs that really run them.

The programs are installed by tools/clients.sh; without them these tests fail. Each runs with an empty environment and
home, in a git repository of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "rllm-core/tests/gateway"))

from client_rig import Workspace
from gateway_toy import tokenizer_dir


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_dir(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)
