"""One writer a run: a lock that the operating system drops when the process dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from rllm.errors import StoreError

__all__ = ["RunLock", "is_locked"]

_FILE = "run.lock"


class RunLock:
    """Held from construction until `release`. Raises `StoreError`, naming the holder, when somebody has it."""

    def __init__(self, folder: Path) -> None:
        path = folder / _FILE
        try:
            self._handle: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"cannot open {str(path)!r}: {error.strerror or error}") from None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._handle, 200, 0).decode(errors="replace").strip() or "another process"
            self.release()
            raise StoreError(
                f"run {str(folder)!r} is being written by {holder}; wait for it or stop it, then try again"
            ) from None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Let others write; idempotent. The file stays, so that all lock the same one."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def is_locked(folder: Path) -> bool:
    """Whether some process writes the run now."""
    try:
        handle = os.open(folder / _FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
