"""Evaluation: the same engine and gateway as training, with the results in a run of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllm.eval.run import EvalResult, Evaluation, evaluate

__all__ = ["EvalResult", "Evaluation", "evaluate"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from rllm.eval import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
