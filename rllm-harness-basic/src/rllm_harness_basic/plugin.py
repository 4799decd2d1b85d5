"""What this package offers to rllm. Listing it imports no agent."""

from __future__ import annotations

from rllm.hookspecs import hookimpl
from rllm.interfaces.spec import HarnessSpec

__all__ = ["rllm_harnesses"]


@hookimpl
def rllm_harnesses() -> list[HarnessSpec]:
    """The agents of this package."""
    return [
        HarnessSpec(
            name="nop",
            summary="Does nothing: what a benchmark gives for no attempt, and the cost of the engine alone",
            target="rllm_harness_basic.nop:Nop",
        ),
        HarnessSpec(
            name="react",
            summary="Puts the task to the model in one chat call; the reply is the answer",
            target="rllm_harness_basic.react:React",
        ),
    ]
