"""The shape of a verdict, the same for every grader of this package, and reading a task's reference."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rllm.errors import DataError
from rllm.types import EvalOutput, Signal, Task

__all__ = ["reference", "unparsed", "verdict"]

_NO_SIGNALS: Mapping[str, float] = MappingProxyType({})


def verdict(
    extracted: str | None, *, correct: bool, reason: str = "", signals: Mapping[str, float] = _NO_SIGNALS
) -> EvalOutput:
    """A reward of 1 or 0 for an answer that was understood."""
    return _output(correct, "ok", extracted, reason, {"format": 1.0, **signals})


def unparsed(extracted: str | None, reason: str, *, signals: Mapping[str, float] = _NO_SIGNALS) -> EvalOutput:
    """A reward of 0 for a reply in which no usable answer was found."""
    return _output(False, "unparsed", extracted, reason, {"format": 0.0, **signals})


def _output(correct: bool, status: str, extracted: str | None, reason: str, signals: dict[str, float]) -> EvalOutput:
    metadata: dict[str, Any] = {"status": status, "extracted": extracted}
    if reason:
        metadata["reason"] = reason
    return EvalOutput(
        reward=1.0 if correct else 0.0,
        is_correct=correct,
        signals=[Signal(name=name, value=value) for name, value in signals.items()],
        metadata=metadata,
    )


def reference(task: Task, key: str) -> Any:
    """`task.reference[key]`; raises `DataError` without it."""
    if key not in task.reference:
        raise DataError(
            f"task {task.id!r} has no {key!r} in its reference, which its grader needs; "
            "take the task from the benchmark, not from `for_agent`"
        )
    return task.reference[key]
