"""Sandboxes that break one promise each."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rllm.interfaces.sandbox import ExecResult
from rllm.testing import SandboxConformance
from rllm.testing.examples.sandbox import ExampleSandbox


class TestGood(SandboxConformance):
    tick_s = 0.2

    class Sandbox(ExampleSandbox):
        pass

    @pytest.fixture
    def make_sandbox(self) -> Any:
        async def make() -> Any:
            return self.Sandbox()

        return make


class TestNoStderr(TestGood):
    class Sandbox(ExampleSandbox):
        async def exec(self, command: str, *, timeout_s: float) -> Any:
            return dataclasses.replace(await super().exec(command, timeout_s=timeout_s), stderr="")


class TestZeroOrOne(TestGood):
    class Sandbox(ExampleSandbox):
        async def exec(self, command: str, *, timeout_s: float) -> Any:
            found = await super().exec(command, timeout_s=timeout_s)
            return dataclasses.replace(found, exit_code=min(found.exit_code, 1))


class TestForgetsFiles(TestGood):
    class Sandbox(ExampleSandbox):
        async def exec(self, command: str, *, timeout_s: float) -> Any:
            found = await super().exec(command, timeout_s=timeout_s)
            (self.folder / "file").unlink(missing_ok=True)
            return found


class TestOneFolder(TestGood):
    class Sandbox(ExampleSandbox):
        shared = Path(tempfile.gettempdir()) / f"rllm-kit-{id(object())}"

        def __init__(self) -> None:
            super().__init__()
            shutil.rmtree(self.folder)
            self.folder = self.shared
            self.folder.mkdir(exist_ok=True)


class TestWaitsForInput(TestGood):
    class Sandbox(ExampleSandbox):
        async def exec(self, command: str, *, timeout_s: float) -> Any:
            return await super().exec("sleep 30" if command == "cat" else command, timeout_s=timeout_s)


class TestSilentTimeout(TestGood):
    class Sandbox(ExampleSandbox):
        async def exec(self, command: str, *, timeout_s: float) -> Any:
            return dataclasses.replace(await super().exec(command, timeout_s=timeout_s), timed_out=False)


class TestKillsOneProcess(TestGood):
    class Sandbox(ExampleSandbox):
        async def exec(self, command: str, *, timeout_s: float) -> Any:
            if "touch alive" in command:
                command = "setsid sh -c 'sleep 0.3; touch alive' & sleep 30"
            return await super().exec(command, timeout_s=timeout_s)


class TestSilentCut(TestGood):
    class Sandbox(ExampleSandbox):
        async def exec(self, command: str, *, timeout_s: float) -> Any:
            return dataclasses.replace(await super().exec(command, timeout_s=timeout_s), truncated=False)


class TestTextOnly(TestGood):
    class Sandbox(ExampleSandbox):
        async def exec(self, command: str, *, timeout_s: float) -> Any:
            found = await super().exec(command, timeout_s=timeout_s)
            found.stdout.encode("ascii")
            return found


class TestOneAtATime(TestGood):
    class Sandbox(ExampleSandbox):
        def __init__(self) -> None:
            super().__init__()
            self.lock = asyncio.Lock()

        async def exec(self, command: str, *, timeout_s: float) -> Any:
            async with self.lock:
                return await super().exec(command, timeout_s=timeout_s)


class TestClosesOnce(TestGood):
    class Sandbox(ExampleSandbox):
        async def close(self) -> None:
            if not self.folder.exists():
                raise RuntimeError("closed already")
            await super().close()


class TestPretends(TestGood):
    class Sandbox(ExampleSandbox):
        async def exec(self, command: str, *, timeout_s: float) -> Any:
            if not self.folder.exists():
                return ExecResult(exit_code=0, stdout="", stderr="")
            return await super().exec(command, timeout_s=timeout_s)
