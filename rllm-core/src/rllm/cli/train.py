"""`rllm train`: train a model by reinforcement learning on a benchmark."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

__all__ = ["command"]


@click.command("train")
@click.argument("benchmark", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--agent", help="Agent program, or module:attribute; default: the benchmark's own.")
@click.option("--model", help="Name, directory or hub id.")
@click.option("--backend", help="What trains and samples; default local.")
@click.option("--estimator", help="Advantage estimator; default grpo.")
@click.option("--steps", type=int, help="Learner steps.")
@click.option("--seed", type=int, help="Everything random derives from it.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="A YAML file.")
@click.option("--resume", metavar="RUN", help="Go on with an earlier run: its id, name or folder.")
@click.option("--explain", is_flag=True, help="Show every setting, where it came from and what the backend can do.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
def command(
    benchmark: str | None,
    overrides: tuple[str, ...],
    agent: str | None,
    model: str | None,
    backend: str | None,
    estimator: str | None,
    steps: int | None,
    seed: int | None,
    file: Path | None,
    resume: str | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Train a model on BENCHMARK. Every setting can be given as KEY=VALUE.

    \b
    rllm train countdown --backend local
    rllm train countdown --model smollm2 trainer.steps=20
    """
    flags: dict[str, Any] = {
        "agent.name": agent,
        "model.name": model,
        "backend.name": backend,
        "algorithm.estimator": estimator,
        "trainer.steps": steps,
        "trainer.seed": seed,
    }
    if resume is not None:
        given = benchmark or overrides or file or explain or any(value is not None for value in flags.values())
        _resume(resume, not given, as_json)
        return
    _train(benchmark, overrides, flags, file, explain, as_json)


def _train(
    benchmark: str | None,
    overrides: tuple[str, ...],
    flags: dict[str, Any],
    file: Path | None,
    explain: bool,
    as_json: bool,
) -> None:
    from rllm.cli.named_run import model_of
    from rllm.cli.words import split_target
    from rllm.config.loading import load_train_config
    from rllm.trainer.agent_trainer import AgentTrainer
    from rllm.trainer.defaults import model_defaults

    flags["benchmark.name"], words = split_target(benchmark, overrides)
    flags["model.name"] = model_of(flags["model.name"])
    loaded = load_train_config(file, words, flags, suggest=model_defaults)
    if explain:
        from rllm.cli.explain import print_explanation

        print_explanation(loaded, as_json=as_json)
        return
    from rllm.cli.display import TrainDisplay

    display = TrainDisplay(loaded.config.benchmark.name or "train")
    trainer = AgentTrainer(config=loaded.config, observer=display)
    _go(trainer, display, None, as_json)


def _resume(name: str, alone: bool, as_json: bool) -> None:
    from rllm.cli.display import TrainDisplay
    from rllm.cli.named_run import resumable
    from rllm.config.loading import config_from_mapping
    from rllm.config.schema import TrainConfig
    from rllm.trainer.agent_trainer import AgentTrainer

    run = resumable(name, "train", alone=alone)
    config = config_from_mapping(TrainConfig, run.manifest["config"])
    display = TrainDisplay(config.benchmark.name or "train")
    trainer = AgentTrainer(config=config, observer=display)
    _go(trainer, display, run.path, as_json)


def _go(trainer: Any, display: Any, resume: Path | None, as_json: bool) -> None:
    from rllm.trainer.interrupt import Interrupted

    try:
        with display:
            result = trainer.train(resume=resume)
    except Interrupted as stop:
        click.echo(f"stopped; everything finished is kept. Go on with: rllm train --resume {stop}", err=True)
        sys.exit(130)
    accuracies = validation_curve(result.path)
    if as_json:
        print(
            json.dumps(
                {
                    "run": result.run_id,
                    "path": str(result.path),
                    "model": str(result.model),
                    "steps": result.steps,
                    "validation": [{"step": step, "accuracy": value} for step, value in accuracies],
                }
            )
        )
        return
    if len(accuracies) > 1:
        first, last = accuracies[0][1], accuracies[-1][1]
        gain = 100 * (last - first)
        click.echo(f"held out   {100 * first:.1f} % before, {100 * last:.1f} % after ({gain:+.1f} points)")
    click.echo(f"steps      {result.steps}")
    click.echo(f"run        {result.run_id}")
    click.echo(f"model      {result.model}")
    click.echo(f"try        rllm eval {trainer.plan.title} --model run:{result.run_id}")


def validation_curve(path: Path) -> list[tuple[int, float]]:
    """(step, held-out accuracy) of every validation in a run's folder."""
    from rllm.store import RunStore

    with RunStore.open(path, write=False) as store:
        rows = store.metrics("validation")
    return [(int(row["step"]), float(row["validation/accuracy"])) for row in rows if "validation/accuracy" in row]
