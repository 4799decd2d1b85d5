"""What this package offers to rllm. Listing it imports no benchmark."""

from __future__ import annotations

from rllm.hookspecs import hookimpl
from rllm.interfaces.spec import BenchmarkSpec

__all__ = ["rllm_benchmarks"]


@hookimpl
def rllm_benchmarks() -> list[BenchmarkSpec]:
    """The benchmarks of this package."""
    return [
        BenchmarkSpec(
            name="arithmetic",
            summary="Add, subtract and multiply whole numbers exactly; generated",
            target="rllm_bench.arithmetic:Arithmetic",
            procedural=True,
        ),
        BenchmarkSpec(
            name="countdown",
            summary="Make a target number from given numbers; generated, every problem solvable",
            target="rllm_bench.countdown:Countdown",
            procedural=True,
        ),
        BenchmarkSpec(
            name="gsm8k",
            summary="Grade-school word problems, read from JSONL files that you have",
            target="rllm_bench.gsm8k:Gsm8k",
        ),
        BenchmarkSpec(
            name="sort",
            summary="Put letters or numbers in order; generated",
            target="rllm_bench.sorting:Sort",
            procedural=True,
        ),
    ]
