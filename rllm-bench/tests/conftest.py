"""Real data for the tests: the project's shared folder, beside or above the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def datasets() -> Path:
    """`shared/data/datasets`, from RLLM_SHARED_DATA (the `data` folder) or from a folder above this file."""
    given = os.environ.get("RLLM_SHARED_DATA")
    roots = [Path(given)] if given else [parent / "shared" / "data" for parent in Path(__file__).parents]
    found = [root / "datasets" for root in roots if (root / "datasets").is_dir()]
    assert found, f"no shared/data/datasets above {__file__}; set RLLM_SHARED_DATA to the shared data folder"
    return found[0]
