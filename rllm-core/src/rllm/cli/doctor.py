"""`rllm doctor`: whether this installation can work, and what to do where it cannot."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from rllm import plugins
from rllm.errors import StoreError, boundary, one_line
from rllm.interfaces.spec import Requirement
from rllm.plugins.discovery import CORE, core_version
from rllm.plugins.lookup import KINDS
from rllm.plugins.targets import missing

__all__ = ["command"]

LEAST_FREE_BYTES = 1 << 30
"""A run folder with less room than this is reported as broken."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    topic: str
    text: str
    broken: bool = False
    remedy: str = ""


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--deep", is_flag=True, help="Also ask torch, if it is installed, for its devices; takes seconds.")
@click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    show_default=True,
    help="Folder of runs to look at; default: where runs are kept.",
)
def command(*, as_json: bool, deep: bool, runs: Path | None) -> None:
    """Check this installation and say what is broken; the exit status is 1 when something is."""
    findings = [*_python(), *_plugins(), *_optional(), *_run_folder(runs or _kept()), *_device(deep=deep)]
    broken = any(finding.broken for finding in findings)
    if as_json:
        json.dump({"ok": not broken, "findings": [asdict(each) for each in findings]}, sys.stdout, indent=2)
        click.echo()
    else:
        for finding in findings:
            mark = "FAIL" if finding.broken else "ok"
            click.echo(f"{mark:4}  {finding.topic}: {finding.text}")
            if finding.remedy:
                click.echo(f"      {finding.remedy}")
    if broken:
        raise SystemExit(1)


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    old = sys.version_info < (3, 11)
    yield Finding("python", f"{version} at {sys.executable}", old, "rllm needs Python 3.11 or later" if old else "")
    yield Finding("platform", f"{platform.platform()}, {os.cpu_count()} CPUs")
    yield Finding(CORE, core_version())


def _plugins() -> Iterator[Finding]:
    for record in plugins.inventory():
        name = f"plugin {record.name}"
        if not record.enabled:
            yield Finding(name, f"{record.distribution} {record.version}, left out by RLLM_PLUGINS")
        for failure in record.failures:
            yield Finding(name, f"{failure.phase}: {failure.message}", True, failure.remedy)
        if record.enabled and not record.failures:
            count = sum(len(names) for names in record.contributions.values())
            yield Finding(name, f"{record.distribution} {record.version} offers {count}")


def _optional() -> Iterator[Finding]:
    """Extras of the core, and what specs require; not having them is no fault."""
    for text in importlib.metadata.requires(CORE) or []:
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", text)
        found = re.match(r"[\w.-]+", text)
        if extra is None or found is None:
            continue
        try:
            state = importlib.metadata.version(found.group())
        except importlib.metadata.PackageNotFoundError:
            state = f"not installed; pip install {CORE}[{extra.group(1)}]"
        yield Finding(f"optional {found.group()}", state)
    for kind in sorted(KINDS):
        for spec in plugins.registry(kind).specs():
            for lacking in missing(spec.requires):
                yield Finding(f"{kind} {spec.name}", f"needs {lacking.module}, not installed; {lacking.install}")


def _kept() -> Path:
    from rllm.config.environment import runs_folder

    return runs_folder()


def _run_folder(runs: Path) -> Iterator[Finding]:
    folder = next(each for each in (runs.absolute(), *runs.absolute().parents) if each.is_dir())
    try:
        with boundary(StoreError, str(folder)), tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"rllm")
    except StoreError as error:
        yield Finding("run folder", one_line(error), True, "choose another with --runs, or change its permissions")
    free = shutil.disk_usage(folder).free
    full = free < LEAST_FREE_BYTES
    text = f"{runs.absolute()}, {free / (1 << 30):.1f} GiB free"
    yield Finding("run folder", text, full, "free some space" if full else "")


def _device(*, deep: bool) -> Iterator[Finding]:
    program = shutil.which("nvidia-smi")
    cards: list[str] = []
    if program is not None:
        try:
            listing = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=10, check=False)
            cards = [line.partition(" (UUID")[0] for line in listing.stdout.splitlines() if line.startswith("GPU ")]
        except (OSError, subprocess.TimeoutExpired) as error:
            yield Finding("device", f"nvidia-smi does not answer: {one_line(error)}", True, "check the NVIDIA driver")
    yield Finding("device", "; ".join(cards) or "no NVIDIA GPU; models run on the CPU")
    if deep:
        yield _torch()


def _torch() -> Finding:
    """Asked in a process of its own: an import that crashes must not take the report with it."""
    code = (
        "import torch; c = torch.cuda; "
        "print(torch.__version__, *[c.get_device_name(i) for i in range(c.device_count())], sep='; ')"
    )
    if missing([Requirement("torch", "pip install torch")]):
        return Finding("torch", "not installed")
    try:
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return Finding("torch", "its import took more than 120 s", True, "pip install --force-reinstall torch")
    if answer.returncode:
        reason = (answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"])[-1]
        return Finding("torch", reason, True, "pip install --force-reinstall torch")
    return Finding("torch", answer.stdout.strip())
