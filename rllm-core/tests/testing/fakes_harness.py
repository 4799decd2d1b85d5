"""Harnesses that break one promise each."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from rllm.errors import AgentError
from rllm.testing import HarnessConformance
from rllm.testing.examples.harness import ExampleHarness


class TestGood(HarnessConformance):
    class Harness(ExampleHarness):
        pass

    @pytest.fixture
    def make_harness(self) -> Any:
        return self.Harness


class TestReturnsText(TestGood):
    class Harness(ExampleHarness):
        async def run(self, task: Any, config: Any, env: Any) -> Any:
            await super().run(task, config, env)
            return "4"


class TestForgetsTheInstruction(TestGood):
    class Harness(ExampleHarness):
        async def run(self, task: Any, config: Any, env: Any) -> Any:
            instruction = task.instruction.replace("kestrel", "")
            return await super().run(task.model_copy(update={"instruction": instruction}), config, env)


class TestOwnModel(TestGood):
    class Harness(ExampleHarness):
        async def run(self, task: Any, config: Any, env: Any) -> Any:
            return await super().run(task, dataclasses.replace(config, model="favourite"), env)


class TestSharesItsConfig(TestGood):
    class Harness(ExampleHarness):
        async def run(self, task: Any, config: Any, env: Any) -> Any:
            self.config = config
            await asyncio.sleep(0.01)
            return await super().run(task, self.config, env)


class TestRemembers(TestGood):
    class Harness(ExampleHarness):
        def __init__(self) -> None:
            self.seen: dict[str, str] = {}

        async def run(self, task: Any, config: Any, env: Any) -> Any:
            text = self.seen.get(task.id, "") + task.instruction
            self.seen[task.id] = text
            return await super().run(task.model_copy(update={"instruction": text}), config, env)


class TestSwallowsErrors(TestGood):
    class Harness(ExampleHarness):
        async def run(self, task: Any, config: Any, env: Any) -> Any:
            try:
                return await super().run(task, config, env)
            except AgentError:
                return None


class TestHidesCancellation(TestGood):
    class Harness(ExampleHarness):
        async def run(self, task: Any, config: Any, env: Any) -> Any:
            try:
                return await super().run(task, config, env)
            except asyncio.CancelledError:
                return None


class TestLeavesWork(TestGood):
    class Harness(ExampleHarness):
        async def run(self, task: Any, config: Any, env: Any) -> Any:
            self.work = asyncio.ensure_future(asyncio.sleep(30))
            return await super().run(task, config, env)


class TestWritesIntoTheTask(TestGood):
    class Harness(ExampleHarness):
        async def run(self, task: Any, config: Any, env: Any) -> Any:
            task.metadata["attempted"] = True
            return await super().run(task, config, env)
