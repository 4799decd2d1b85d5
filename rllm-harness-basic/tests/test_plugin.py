from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from rllm.interfaces.spec import HarnessSpec
from rllm_harness_basic.plugin import rllm_harnesses


def test_the_agents_are_offered_under_sorted_names_and_need_no_sandbox() -> None:
    assert [(spec.name, spec.needs_sandbox) for spec in rllm_harnesses()] == [
        ("nop", False),
        ("react", False),
    ]


@pytest.mark.parametrize("spec", rllm_harnesses(), ids=lambda spec: spec.name)
def test_every_target_exists_and_needs_no_option(spec: HarnessSpec) -> None:
    module, _, attribute = spec.target.partition(":")
    assert callable(getattr(importlib.import_module(module), attribute)().run)


def test_listing_imports_no_agent_and_no_http_client() -> None:
    code = (
        "import sys, rllm_harness_basic.plugin as p; p.rllm_harnesses(); "
        "print(sorted(m for m in sys.modules if m.startswith(('rllm_harness', 'aiohttp', 'pydantic'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['rllm_harness_basic', 'rllm_harness_basic.plugin']"
