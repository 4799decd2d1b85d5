"""`rllm runs`: what has been run, and what came of it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rllm.store import RunStore

__all__ = ["command"]


@click.group("runs")
def command() -> None:
    """List runs and look into them."""


@command.command("list")
@click.option("--kind", type=click.Choice(["train", "eval"]), help="Only runs of this kind.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Newest runs shown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
def list_(kind: str | None, limit: int, as_json: bool) -> None:
    """The newest runs, newest first."""
    from rllm.config.environment import read_environment
    from rllm.store import list_runs

    folder = read_environment().runs
    runs = [run for run in list_runs(folder) if kind is None or run.kind == kind][:limit]
    if as_json:
        click.echo(
            json.dumps(
                [
                    {
                        "id": run.id,
                        "kind": run.kind,
                        "name": run.name,
                        "status": run.status,
                        "created_at": run.created_at,
                        "path": str(run.path),
                    }
                    for run in runs
                ]
            )
        )
        return
    if not runs:
        click.echo(f"no runs in {folder}")
    for run in runs:
        click.echo(f"{run.id:<34} {run.kind:<6} {run.status:<12} {run.created_at[:16]}")


@command.command("show")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
def show(run: str, as_json: bool) -> None:
    """One run: its settings, its results and how to go on. RUN is an id, a name or a folder."""
    from rllm.config.environment import read_environment
    from rllm.store import RunStore, find_run, list_runs

    path = find_run(read_environment().runs, run)
    status = next(each.status for each in list_runs(path.absolute().parent) if each.path.name == path.absolute().name)
    with RunStore.open(path, write=False) as store:
        data = _describe(store)
        if as_json:
            click.echo(json.dumps({"path": str(path), "status": status, "manifest": dict(store.manifest), **data}))
            return
        manifest = store.manifest
        click.echo(f"run       {store.id}\nkind      {manifest['kind']} {manifest['name']}")
        click.echo(f"status    {status}\ncreated   {manifest['created_at']}\nfolder    {path}")
        _print(store, data)
        if status not in ("finished", "running", "created"):
            click.echo(f"go on     rllm {manifest['kind']} --resume {store.id}")


def _describe(store: RunStore) -> dict[str, object]:
    from rllm.engine.statistics import summarize

    data: dict[str, object] = {}
    if store.manifest["kind"] == "eval":
        data["summary"] = summarize(store.episodes(split="eval")).as_dict()
    else:
        data["validation"] = store.metrics("validation")
        train = store.metrics("train")
        data["steps"] = len(train)
        data["last"] = train[-1] if train else {}
        data["reward"] = [row.get("reward/mean") for row in train]
    return data


def _print(store: RunStore, data: dict[str, object]) -> None:
    from rllm.cli.report import report_lines
    from rllm.engine.statistics import summarize

    if "summary" in data:
        for label, value in report_lines(summarize(store.episodes(split="eval"))):
            click.echo(f"{label:<13} {value}")
        return
    config = store.manifest["config"]
    click.echo(f"model     {config['model']['name']} on {config['backend']['name']}")
    click.echo(f"steps     {data['steps']} of {config['trainer']['steps']}")
    for row in store.metrics("validation"):
        if "validation/accuracy" in row:
            click.echo(f"held out  {100 * row['validation/accuracy']:.1f} % after step {row['step']:.0f}")
    rewards = [row["reward/mean"] for row in store.metrics("train") if "reward/mean" in row]
    if rewards:
        click.echo(f"reward    {sparkline(rewards)}  {rewards[0]:.3f} to {rewards[-1]:.3f}")


def sparkline(values: list[float], width: int = 40) -> str:
    """A curve in one line of block characters, each the mean of its share of the values."""
    blocks = "▁▂▃▄▅▆▇█"
    count = min(width, len(values))
    edges = [round(len(values) * i / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return "".join(blocks[round((value - low) * scale)] for value in means)
