"""`rllm plugins`: what is installed, what each plugin offers, what is wrong with it, and a start for a new one."""

from __future__ import annotations

import dataclasses
import json
import sys
import textwrap
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from rllm import plugins
from rllm.errors import RllmError, UnknownName, one_line
from rllm.interfaces.spec import Spec
from rllm.plugins import PluginRecord
from rllm.plugins.discovery import core_version
from rllm.plugins.lookup import KINDS
from rllm.plugins.suggest import did_you_mean
from rllm.plugins.targets import missing

__all__ = ["command"]


@click.group(name="plugins", help="List, check and create plugins.")
def command() -> None:
    """Group of the commands below."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(*, as_json: bool) -> None:
    """List every plugin: what it offers and what is wrong with it."""
    records = plugins.inventory()
    if as_json:
        _print_json({"core": core_version(), "plugins": [_as_json(record) for record in records]})
        return
    for record in records:
        _print_record(record)


@command.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(name: str, *, as_json: bool) -> None:
    """Show the plugin, distribution, or thing that is called NAME; of a plugin that failed, the whole failure."""
    records = [each for each in plugins.inventory() if name in (each.name, each.distribution)]
    specs = [spec for kind in sorted(KINDS) for spec in plugins.registry(kind).specs() if spec.name == name]
    if not records and not specs:
        known = [each.name for each in plugins.inventory()]
        known += [spec.name for kind in KINDS for spec in plugins.registry(kind).specs()]
        raise UnknownName(f"no plugin, and nothing that one offers, is called {name!r}{did_you_mean(name, known)}")
    if as_json:
        _print_json({"plugins": [_as_json(each) for each in records], "things": [_spec_json(each) for each in specs]})
    else:
        for record in records:
            _print_record(record)
            for failure in record.failures:
                click.echo("".join(traceback.format_exception(failure.error)).rstrip(), err=True)
        for spec in specs:
            _print_spec(spec)
    if any(record.failures for record in records):
        raise SystemExit(1)


@command.command()
@click.option("--load", is_flag=True, help="Also import what every plugin points at, upstreams included.")
def check(*, load: bool) -> None:
    """Say what is wrong with the installed plugins; the exit status is 1 when something is."""
    if load:
        _load_everything()
    records = plugins.inventory()
    clashes = list(_clashes(records))
    failed = [record for record in records if record.failures]
    for record in failed:
        _print_record(record)
    for clash in clashes:
        click.echo(clash)
    loaded = sum(record.loaded for record in records)
    click.echo(f"{loaded} plugins loaded, {len(failed)} with failures, {len(clashes)} commands hidden")
    if failed or clashes:
        raise SystemExit(1)


@command.command()
@click.argument("kind")
@click.argument("name")
@click.option(
    "--path",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Folder to create the package in; by default the working directory.",
)
def new(kind: str, name: str, *, path: Path) -> None:
    """Write a package that offers NAME of KIND (harness, sandbox, backend, benchmark, algorithm, tracker).

    It works as it is, and its tests are the conformance kit of its kind.
    """
    from rllm.plugins.scaffold import write_package

    folder = write_package(kind, name, path)
    click.echo(f"created {folder}")
    click.echo(f"next: pip install -e {folder} && python -m pytest {folder}")


def _load_everything() -> None:
    for kind in sorted(KINDS):
        registry = plugins.registry(kind)
        for name in registry.names():
            try:
                registry.load(name)
            except RllmError as error:
                click.echo(f"{kind} {name!r}: {one_line(error)}", err=True)


def _clashes(records: Iterable[PluginRecord]) -> Iterable[str]:
    from rllm.cli.commands import TABLE

    for record in records:
        for name in sorted(TABLE.keys() & set(record.contributions.get("command", ()))):
            yield f"{record.distribution}: its command {name!r} is hidden by the core's own; it needs another name"


def _print_record(record: PluginRecord) -> None:
    state = "" if record.enabled else "  (left out by RLLM_PLUGINS)"
    title = f"{record.name}  {record.distribution} {record.version}".rstrip()
    click.echo(title + state)
    for kind, names in record.contributions.items():
        _print_wrapped(f"  {kind}: ", ", ".join(names))
    for failure in record.failures:
        _print_wrapped(f"  failed ({failure.phase}): ", failure.message)
        _print_wrapped("    remedy: ", failure.remedy)


def _print_spec(spec: Spec) -> None:
    click.echo(f"{spec.kind} {spec.name}")
    for key, value in _spec_json(spec).items():
        if key not in ("kind", "name", "requires") and value not in ("", [], None):
            _print_wrapped(f"  {key}: ", ", ".join(map(str, value)) if isinstance(value, list) else str(value))
    lacking = missing(spec.requires)
    for requirement in spec.requires:
        state = f"not installed; {requirement.install}" if requirement in lacking else "installed"
        click.echo(f"  requires: {requirement.module} ({state})")


def _print_wrapped(label: str, text: str) -> None:
    indent = " " * min(len(label), 8)
    click.echo(
        textwrap.fill(label + text, 80, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    )


def _as_json(record: PluginRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "module": record.module,
        "group": record.group,
        "enabled": record.enabled,
        "loaded": record.loaded,
        "import_s": round(record.import_s, 4),
        "contributions": {kind: list(names) for kind, names in record.contributions.items()},
        "failures": [
            {
                "phase": str(failure.phase),
                "error": type(failure.error).__name__,
                "message": failure.message,
                "remedy": failure.remedy,
            }
            for failure in record.failures
        ],
    }


def _spec_json(spec: Spec) -> dict[str, Any]:
    table = {
        key: sorted(value) if isinstance(value, frozenset) else value for key, value in dataclasses.asdict(spec).items()
    }
    return {"kind": spec.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in table.items()}}


def _print_json(value: object) -> None:
    json.dump(value, sys.stdout, indent=2)
    click.echo()
