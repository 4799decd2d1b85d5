"""The table of the core's own commands: where each is, and its line of help. Listing them imports none."""

from __future__ import annotations

import importlib.metadata

import click

from rllm.cli.group import LazyGroup

__all__ = ["TABLE", "command"]

TABLE = {
    "eval": ("rllm.cli.eval:command", "Evaluate a model or an agent on a benchmark."),
    "train": ("rllm.cli.train:command", "Train a model on a benchmark by reinforcement learning."),
    "runs": ("rllm.cli.runs:command", "List and show runs."),
    "model": ("rllm.cli.model:command", "Set up the model that commands use by default."),
    "plugins": ("rllm.cli.plugins:command", "List, check and create plugins."),
    "doctor": ("rllm.cli.doctor:command", "Check this installation and say what is broken."),
}


def _version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"rllm {importlib.metadata.version('rllm-core')}")
        ctx.exit()


command = LazyGroup(
    table=TABLE,
    name="rllm",
    help="Evaluate and train language agents with reinforcement learning.",
    epilog="Plugins may have more commands: rllm plugins list.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Show the version and exit.",
        )
    ],
)
