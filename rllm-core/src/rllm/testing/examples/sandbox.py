"""A sandbox that is a temporary folder: commands run in it, with the user's own rights. It isolates nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path

from rllm.errors import InfraError
from rllm.interfaces.sandbox import ExecResult

__all__ = ["ExampleSandbox"]

LIMIT_BYTES = 1 << 20
"""Most output of one stream that is kept."""


class ExampleSandbox:
    """Construct it inside a running event loop; `close` kills what is left and deletes the folder."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="example-"))
        self._groups: set[int] = set()
        self._count = 0

    async def exec(self, command: str, *, timeout_s: float) -> ExecResult:
        """Run a shell command in the folder. A timeout kills its process group and is reported, not raised."""
        if not self.folder.is_dir():
            raise InfraError("the sandbox is closed")
        self._count += 1
        names = [self.folder / f".{stream}-{self._count}" for stream in ("out", "err")]
        with names[0].open("wb") as out, names[1].open("wb") as err:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                command,
                cwd=self.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._groups.add(process.pid)
        timed_out = False
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            timed_out = True
        finally:
            if process.returncode is None:
                _kill(process.pid)
                await process.wait()
        stdout, stderr = (_read(name) for name in names)
        return ExecResult(
            exit_code=process.returncode if process.returncode is not None else -1,
            stdout=stdout[0],
            stderr=stderr[0],
            timed_out=timed_out,
            truncated=stdout[1] or stderr[1],
        )

    async def close(self) -> None:
        """Kill what still runs and delete the folder; idempotent."""
        while self._groups:
            _kill(self._groups.pop())
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)


def _read(path: Path) -> tuple[str, bool]:
    with path.open("rb") as file:
        data = file.read(LIMIT_BYTES + 1)
    path.unlink()
    return data[:LIMIT_BYTES].decode(errors="replace"), len(data) > LIMIT_BYTES


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
