"""`rllm --help` is quick, imports nothing heavy and no plugin, and no plugin can break or slow it."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from rllm.testing.distributions import write_distribution

IMPORTS = "import click, rich, pluggy, stevedore"
HELP = "from rllm.cli import main; main(['--help'])"
MODULES = """
import json, sys
from rllm.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
HEAVY = {"torch", "transformers", "openai", "docker", "datasets", "modal", "pydantic", "aiohttp", "numpy"}
AT_ONCE_S = 5.0
"""Far less than the ten seconds of the sleeping plugin, and far more than a start-up on a busy machine."""


def test_help_starts_within_the_budget() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "RLLM_PLUGINS"}

    def measured(code: str) -> float:
        started = perf_counter()
        subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL, check=True, timeout=60)
        return perf_counter() - started

    measured(IMPORTS), measured(HELP)
    for _ in range(3):  # other work on the machine may disturb one series, not three
        pairs = [(measured(IMPORTS), measured(HELP)) for _ in range(7)]
        budget, took = (statistics.median(each) for each in zip(*pairs, strict=True))
        if took <= 1.5 * budget:
            return
    pytest.fail(f"rllm --help took {took:.3f} s, importing its libraries alone {budget:.3f} s")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["plugins", "--help"], []])
def test_help_and_version_import_nothing_heavy_and_no_plugin(
    rllm_process: Callable[..., Any], site: Path, arguments: list[str]
) -> None:
    write_distribution(
        site, "rllm-far", entry_points={"rllm": {"far": "far_plugin"}}, modules={"far_plugin": "import far_upstream"}
    )
    result = rllm_process(*arguments, code=MODULES)
    modules = set(json.loads(result.err.splitlines()[-1]))
    heavy = HEAVY if arguments != ["plugins", "--help"] else HEAVY - {"numpy", "pydantic"}
    assert not modules & heavy
    assert "far_plugin" not in modules


def test_listing_plugins_imports_no_upstream(rllm_process: Callable[..., Any]) -> None:
    result = rllm_process("plugins", "list", "--json", code=MODULES)
    modules = set(json.loads(result.err.splitlines()[-1]))
    assert not modules & {"torch", "transformers", "openai", "docker", "datasets", "modal"}


def test_no_broken_or_slow_plugin_touches_help_version_or_unrelated_commands(
    rllm_process: Callable[..., Any], broken_site: Path
) -> None:
    for arguments in (["--help"], ["--version"], ["plugins", "--help"], ["plugins", "new", "tracker", "mine"]):
        result = rllm_process(*arguments)
        assert result.status == 0, result.err
        assert result.err == ""
        assert result.took_s < AT_ONCE_S


def test_a_plugins_command_starts_without_the_other_plugins(
    rllm_process: Callable[..., Any], broken_site: Path
) -> None:
    write_distribution(
        broken_site,
        "rllm-hello",
        entry_points={"rllm.commands": {"hello": "hello_command:command"}},
        modules={"hello_command": "import click\n@click.command()\ndef command():\n    click.echo('hello')\n"},
    )
    result = rllm_process("hello")
    assert (result.status, result.out, result.err) == (0, "hello\n", "")
    assert result.took_s < AT_ONCE_S
