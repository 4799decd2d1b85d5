"""`rllm train --explain`: every setting, where it came from, and what the backend makes of it."""

from __future__ import annotations

import json

import click

from rllm.config.explain import explain
from rllm.config.loading import Loaded
from rllm.config.schema import TrainConfig
from rllm.trainer.plan import faults_and_requirements

__all__ = ["print_explanation"]


def print_explanation(loaded: Loaded[TrainConfig], *, as_json: bool) -> None:
    """Print the table; exits with 2 when the configuration is impossible."""
    faults, requirements = faults_and_requirements(loaded.config)
    rows = explain(loaded)
    if as_json:
        data = {
            "settings": [
                {"key": row.key, "value": row.value, "source": row.source.value, "meaning": row.meaning} for row in rows
            ],
            "backend": [
                {"key": each.key, "wanted": each.wanted, "supported": each.supported, "offer": each.offer}
                for each in requirements
            ],
            "faults": list(faults),
        }
        click.echo(json.dumps(data))
    else:
        width = max(len(row.key) for row in rows)
        for row in rows:
            value = json.dumps(row.value)
            click.echo(f"{row.key:<{width}}  {value:<14} {row.source.value}")
        click.echo(f"\nbackend {loaded.config.backend.name}")
        for each in requirements:
            verdict = "ok" if each.supported else f"NOT POSSIBLE: it offers {each.offer}"
            click.echo(f"  {each.key} = {each.wanted}: {verdict}")
        for fault in faults:
            click.echo(f"fault: {fault}", err=True)
    if faults:
        raise click.exceptions.Exit(2)
