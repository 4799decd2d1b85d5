"""What every sandbox promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from rllm.errors import InfraError
from rllm.interfaces.sandbox import Sandbox
from rllm.testing.promise import Kit, fill_in, promise

__all__ = ["SandboxConformance"]

MakeSandbox = Callable[[], Awaitable[Sandbox]]


class SandboxConformance(Kit):
    """Subclass it and return, from the fixture `make_sandbox`, an asynchronous function that makes a sandbox."""

    command_s = 30.0
    """Time limit of commands that should end at once."""
    tick_s = 0.5
    """Time limit of commands that run into it. Raise it where starting a command takes longer."""

    @pytest.fixture
    def make_sandbox(self) -> MakeSandbox:
        """Makes the sandbox under test; the kit closes it."""
        fill_in("make_sandbox", "SandboxConformance", "an asynchronous function that makes the sandbox")

    @promise
    async def test_returns_what_a_command_printed(self, make_sandbox: MakeSandbox) -> None:
        async with _open(make_sandbox) as sandbox:
            result = await sandbox.exec("echo out; echo err >&2", timeout_s=self.command_s)
            assert (result.stdout, result.stderr) == ("out\n", "err\n"), f"got {result!r}"
            assert not result.timed_out, f"got {result!r}"
            assert not result.truncated, f"got {result!r}"

    @promise
    async def test_returns_the_exit_code(self, make_sandbox: MakeSandbox) -> None:
        async with _open(make_sandbox) as sandbox:
            for code in (0, 1, 42):
                result = await sandbox.exec(f"exit {code}", timeout_s=self.command_s)
                assert result.exit_code == code, f"exit {code} was returned as {result.exit_code}"

    @promise
    async def test_keeps_files_between_commands(self, make_sandbox: MakeSandbox) -> None:
        async with _open(make_sandbox) as sandbox:
            await sandbox.exec("printf kept > file", timeout_s=self.command_s)
            result = await sandbox.exec("cat file", timeout_s=self.command_s)
            assert result.stdout == "kept", f"got {result!r}"

    @promise
    async def test_keeps_sandboxes_apart(self, make_sandbox: MakeSandbox) -> None:
        async with _open(make_sandbox) as one, _open(make_sandbox) as other:
            await one.exec("printf mine > file", timeout_s=self.command_s)
            result = await other.exec("cat file", timeout_s=self.command_s)
            assert result.exit_code != 0, f"one sandbox sees another's file: {result!r}"

    @promise
    async def test_gives_a_command_no_input(self, make_sandbox: MakeSandbox) -> None:
        async with _open(make_sandbox) as sandbox:
            result = await sandbox.exec("cat", timeout_s=4 * self.tick_s)
            assert not result.timed_out, "a command that reads its input hangs"

    @promise
    async def test_reports_a_timeout(self, make_sandbox: MakeSandbox) -> None:
        async with _open(make_sandbox) as sandbox:
            started = asyncio.get_running_loop().time()
            result = await sandbox.exec("echo begun; sleep 30", timeout_s=self.tick_s)
            took = asyncio.get_running_loop().time() - started
            assert result.timed_out, f"a command that ran too long is not marked: {result!r}"
            assert took < self.tick_s + 10, f"a limit of {self.tick_s} s took {took:.1f} s"

    @promise
    async def test_kills_the_whole_process_tree_at_a_timeout(self, make_sandbox: MakeSandbox) -> None:
        async with _open(make_sandbox) as sandbox:
            later = f"(sleep {2 * self.tick_s}; touch alive) & sleep 30"
            await sandbox.exec(later, timeout_s=self.tick_s)
            await asyncio.sleep(2 * self.tick_s)
            result = await sandbox.exec("test -e alive", timeout_s=self.command_s)
            assert result.exit_code == 1, "a child of a command that timed out went on"

    @promise
    async def test_says_when_it_cut_the_output(self, make_sandbox: MakeSandbox) -> None:
        async with _open(make_sandbox) as sandbox:
            size = 8_000_000
            command = f"head -c {size} /dev/zero | tr '\\0' x"
            result = await sandbox.exec(command, timeout_s=self.command_s)
            assert result.truncated == (len(result.stdout) < size), (
                f"{len(result.stdout)} of {size} characters, and truncated is {result.truncated}"
            )

    @promise
    async def test_survives_output_that_is_not_text(self, make_sandbox: MakeSandbox) -> None:
        async with _open(make_sandbox) as sandbox:
            result = await sandbox.exec("printf '\\377\\376ok'", timeout_s=self.command_s)
            assert result.stdout.endswith("ok"), f"got {result!r}"

    @promise
    async def test_runs_commands_at_the_same_time(self, make_sandbox: MakeSandbox) -> None:
        async with _open(make_sandbox) as sandbox:
            results = await asyncio.gather(
                sandbox.exec("until test -e go; do sleep 0.05; done; echo first", timeout_s=10 * self.tick_s),
                sandbox.exec("touch go; echo second", timeout_s=self.command_s),
            )
            assert [each.stdout for each in results] == ["first\n", "second\n"], f"got {results!r}"

    @promise
    async def test_closes_twice(self, make_sandbox: MakeSandbox) -> None:
        sandbox = await make_sandbox()
        await sandbox.close()
        await sandbox.close()

    @promise
    async def test_refuses_commands_once_closed(self, make_sandbox: MakeSandbox) -> None:
        sandbox = await make_sandbox()
        await sandbox.close()
        with pytest.raises(InfraError):
            await sandbox.exec("true", timeout_s=self.command_s)


@asynccontextmanager
async def _open(make_sandbox: MakeSandbox) -> AsyncIterator[Sandbox]:
    sandbox = await make_sandbox()
    try:
        yield sandbox
    finally:
        await sandbox.close()
