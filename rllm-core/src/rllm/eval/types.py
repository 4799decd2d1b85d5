"""What an evaluator returns, under the path that existing users of the field know."""

from __future__ import annotations

from rllm.types import EvalOutput, Signal

__all__ = ["EvalOutput", "Signal"]
