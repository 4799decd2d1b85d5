"""Running a conformance kit on fakes, and seeing which promises each of them breaks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Broken = dict[str, set[str]]


class _Recorder:
    """A pytest plugin that notes, by class, which tests ran and which failed."""

    def __init__(self) -> None:
        self.ran: Broken = {}
        self.failed: Broken = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        _, name, test = report.nodeid.split("::")
        if report.when == "call":
            self.ran.setdefault(name, set()).add(test)
            self.failed.setdefault(name, set())
        if report.failed:
            self.failed.setdefault(name, set()).add(test)


@pytest.fixture
def promises(tmp_path: Path) -> Callable[[str], tuple[Broken, Broken]]:
    """Runs a file of fakes beside this one: by class, the promises that were tried and those that were broken."""

    def run(name: str) -> tuple[Broken, Broken]:
        recorder = _Recorder()
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        pytest.main(
            [
                str(Path(__file__).parent / name),
                *("-c", str(tmp_path / "pytest.ini"), "--rootdir", str(tmp_path)),
                *("--import-mode=importlib", "-q", "--tb=short", "-W", "error"),
                *("-p", "no:cacheprovider", "-p", "no:asyncio", "--noconftest"),
            ],
            plugins=[recorder],
        )
        return recorder.ran, recorder.failed

    return run
