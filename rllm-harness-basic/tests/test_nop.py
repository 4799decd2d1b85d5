from __future__ import annotations

from typing import Any

from rllm.types import Task
from rllm_harness_basic.nop import Nop


async def test_nop_makes_no_call(server: Any) -> None:
    await Nop().run(Task(id="t", instruction="i"), server.config(), None)
    assert server.requests == []
