from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from rllm.interfaces.spec import BenchmarkSpec
from rllm_bench.plugin import rllm_benchmarks


def test_the_benchmarks_are_offered_under_sorted_names() -> None:
    assert [spec.name for spec in rllm_benchmarks()] == ["arithmetic", "countdown", "gsm8k", "sort"]


@pytest.mark.parametrize("spec", rllm_benchmarks(), ids=lambda spec: spec.name)
def test_every_target_exists_and_needs_no_option(spec: BenchmarkSpec) -> None:
    module, _, attribute = spec.target.partition(":")
    benchmark = getattr(importlib.import_module(module), attribute)()
    assert hasattr(benchmark.grader, "grade")


def test_listing_imports_no_benchmark_and_nothing_heavy() -> None:
    code = (
        "import sys, rllm_bench.plugin as p; p.rllm_benchmarks(); "
        "print(sorted(m for m in sys.modules if m.startswith(('rllm_bench', 'torch', 'pydantic'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['rllm_bench', 'rllm_bench.plugin']"
