"""Running `rllm` as a process of its own, with out-of-tree distributions on its path."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import pytest

from rllm.testing.distributions import write_distribution

MAIN = "import sys; from rllm.cli import main; main(sys.argv[1:])"


class Result(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str
    took_s: float


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Folder of distributions that `rllm_process` has installed."""
    path = tmp_path / "site"
    path.mkdir()
    return path


@pytest.fixture
def rllm_process(site: Path, tmp_path: Path) -> Callable[..., Result]:
    """Runs `rllm` with arguments, in an empty folder."""
    here = tmp_path / "here"
    here.mkdir()

    def run(*arguments: str, plugins: str | None = None, code: str = MAIN) -> Result:
        environment = {key: value for key, value in os.environ.items() if key != "RLLM_PLUGINS"}
        environment["PYTHONPATH"] = str(site)
        if plugins is not None:
            environment["RLLM_PLUGINS"] = plugins
        started = perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=here,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr, perf_counter() - started)

    return run


@pytest.fixture
def broken_site(site: Path) -> Path:
    """One good plugin among broken ones: import error, exit, misspelt hook, duplicate, incompatible, ten seconds."""
    head = "from rllm.hookspecs import hookimpl\nfrom rllm.interfaces.spec import TrackerSpec\n"
    offer = "@hookimpl\ndef rllm_trackers():\n    return [TrackerSpec(name='{}', summary='', target='json:dumps')]\n"
    sources = {
        "rllm-good": head + offer.format("good"),
        "rllm-importless": "import no_such_module_anywhere\n",
        "rllm-quitter": "raise SystemExit(7)\n",
        "rllm-misspelt": head + "@hookimpl\ndef rllm_trakers():\n    return []\n",
        "rllm-twin-a": head + offer.format("twin"),
        "rllm-twin-b": head + offer.format("twin"),
        "rllm-future": "raise RuntimeError('imported')\n",
        "rllm-sleeper": "import time\ntime.sleep(10)\n",
    }
    for name, source in sources.items():
        module = name.replace("-", "_")
        write_distribution(
            site,
            name,
            entry_points={"rllm": {name.removeprefix("rllm-"): module}},
            modules={module: source},
            requires=("rllm-core>=99",) if name == "rllm-future" else (),
        )
    return site
