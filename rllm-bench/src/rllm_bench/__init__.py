"""Benchmarks and graders for rllm.

`rllm_bench.graders` holds graders that anybody may use alone; each benchmark module holds one `Benchmark`.
"""
