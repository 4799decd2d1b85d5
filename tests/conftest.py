"""Whole-system tests run the real command line in a process of its own, with its own home."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


class CommandLine:
    """`rllm` in a home of its own; the model cache is shared, because making the embedded model takes seconds."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("RLLM_")},
            "RLLM_HOME": str(home),
            "HF_HUB_OFFLINE": "1",
            "COLUMNS": "80",
        }
        if cache := os.environ.get("RLLM_CACHE"):
            self.environment["RLLM_CACHE"] = cache

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    def start(self, words: Sequence[str], **changes: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "rllm", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, **changes},
            cwd=self.home,
        )

    def run(self, *words: str, status: int = 0, timeout_s: float = 240, **changes: str) -> tuple[str, str]:
        """stdout and stderr of a command that ends with `status`."""
        process = self.start(words, **changes)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"rllm {' '.join(words)} did not end in {timeout_s} s\n{out}\n{err}") from None
        assert process.returncode == status, f"rllm {' '.join(words)} ended with {process.returncode}\n{out}\n{err}"
        assert "Traceback" not in err, err
        return out, err

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json")[0])

    def error(self, *words: str, status: int = 2, **changes: str) -> str:
        """The one line that a wrong command ends with."""
        _, err = self.run(*words, status=status, **changes)
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, err
        return lines[0]


@pytest.fixture
def rllm(tmp_path: Path) -> CommandLine:
    home = tmp_path / "a home with spaces"
    home.mkdir()
    return CommandLine(home)
