"""`rllm eval`: measure an agent on a benchmark."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import click

from rllm.cli.report import print_report

__all__ = ["command"]


@click.command("eval")
@click.argument("benchmark", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--agent", help="Agent program, or module:attribute; default: the benchmark's own.")
@click.option("--model", help="Name, directory or hub id; with --base-url the server's name for it.")
@click.option("--base-url", help="An OpenAI-compatible server.")
@click.option("--api-key-env", help="Environment variable that holds the server's key.")
@click.option("--backend", help="What serves the model when there is no --base-url.")
@click.option("--split", help="Split of the benchmark; default test.")
@click.option("--limit", type=int, help="Largest number of tasks.")
@click.option("--tasks", help="Ids of the only tasks to attempt, separated by commas.")
@click.option("--attempts", type=int, help="Attempts at each task.")
@click.option("--concurrency", type=int, help="Rollouts at the same time.")
@click.option("--temperature", type=float, help="Sampling temperature; default 0, greedy.")
@click.option("--max-tokens", type=int, help="Largest number of tokens of one reply.")
@click.option("--seed", type=int, help="Everything random derives from it.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="A YAML file.")
@click.option("--resume", metavar="RUN", help="Complete an earlier run: its id, name or folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
def command(
    benchmark: str | None,
    overrides: tuple[str, ...],
    agent: str | None,
    model: str | None,
    base_url: str | None,
    api_key_env: str | None,
    backend: str | None,
    split: str | None,
    limit: int | None,
    tasks: str | None,
    attempts: int | None,
    concurrency: int | None,
    temperature: float | None,
    max_tokens: int | None,
    seed: int | None,
    file: Path | None,
    resume: str | None,
    as_json: bool,
) -> None:
    """Evaluate an agent on BENCHMARK and store every episode in a run.

    \b
    rllm eval countdown --model embedded
    rllm eval gsm8k --model NAME --base-url http://127.0.0.1:8000/v1
    """
    flags: dict[str, Any] = {
        "agent.name": agent,
        "model.name": model,
        "model.base_url": base_url,
        "model.api_key_env": api_key_env,
        "backend.name": backend,
        "benchmark.split": split,
        "limit": limit,
        "tasks": [part.strip() for part in tasks.split(",")] if tasks else None,
        "attempts": attempts,
        "concurrency": concurrency,
        "sampling.temperature": temperature,
        "sampling.max_tokens": max_tokens,
        "seed": seed,
    }
    _run(benchmark, overrides, flags, file, resume, as_json)


def _run(
    benchmark: str | None,
    overrides: tuple[str, ...],
    flags: dict[str, Any],
    file: Path | None,
    resume: str | None,
    as_json: bool,
) -> None:
    from rllm.cli.display import EvalDisplay
    from rllm.cli.named_run import model_of, resumable
    from rllm.cli.words import split_target
    from rllm.config.environment import read_environment
    from rllm.config.loading import config_from_mapping, load_eval_config
    from rllm.config.schema import EvalConfig
    from rllm.eval.run import Evaluation

    environment = read_environment()
    folder: Path | None = None
    if resume is not None:
        given = benchmark or overrides or file or any(value is not None for value in flags.values())
        run = resumable(resume, "eval", alone=not given)
        folder = run.path
        config = config_from_mapping(EvalConfig, run.manifest["config"])
    else:
        flags["benchmark.name"], words = split_target(benchmark, overrides)
        flags["model.name"] = model_of(flags["model.name"])
        config = load_eval_config(file, words, flags, user_defaults=environment.eval_defaults()).config
    display = EvalDisplay(config.benchmark.name or "eval")
    evaluation = Evaluation(config, on_start=display.start, on_episode=display.episode)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with display:
            result = asyncio.run(evaluation.run_async(runs=environment.runs, resume=folder))
    except KeyboardInterrupt:
        if not evaluation.run_id:
            raise
        click.echo(
            f"stopped; everything finished is kept. Go on with: rllm eval --resume {evaluation.run_id}", err=True
        )
        sys.exit(130)
    if as_json:
        print(json.dumps({"run": result.run_id, "path": str(result.path), **result.summary.as_dict()}))
    else:
        print_report(result.run_id, result.path, result.summary)
    if not result.summary.graded:
        click.echo("error: no episode was graded", err=True)
        sys.exit(1)
