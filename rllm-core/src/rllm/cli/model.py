"""`rllm model`: the model that evaluations use when none is named."""

from __future__ import annotations

import json
import sys

import click

__all__ = ["command"]


@click.group("model")
def command() -> None:
    """Choose the model that `rllm eval` uses when none is named."""


@command.command("setup")
@click.option("--name", help="The server's name for the model, or one that a backend can open.")
@click.option("--base-url", help="An OpenAI-compatible server; empty for a local backend.")
@click.option("--api-key-env", help="Environment variable that holds the server's key; empty for none.")
@click.option("--store-key", is_flag=True, help="Ask for the key and keep it in the file too (mode 0600).")
def setup(name: str | None, base_url: str | None, api_key_env: str | None, store_key: bool) -> None:
    """Write the choice to the user's file. Asks for what is not given, on a terminal."""
    from rllm.config.environment import ModelDefaults, UserFile, read_environment
    from rllm.errors import ConfigError

    interactive = sys.stdin.isatty()
    if name is None:
        if not interactive:
            raise ConfigError("give --name: there is no terminal to ask on")
        name = click.prompt("model", default="embedded")
        base_url = click.prompt("base URL of its server (empty: a local backend)", default="", show_default=False)
        if base_url:
            api_key_env = click.prompt(
                "environment variable that holds the key (empty: none)", default="", show_default=False
            )
    if not name:
        raise ConfigError("--name is empty, expected the name of a model")
    if api_key_env and not base_url:
        raise ConfigError(f"--api-key-env {api_key_env} is for a server: give its --base-url too")
    environment = read_environment()
    stored = environment.read_user_file()
    keys = dict(stored.keys)
    if store_key:
        if not api_key_env:
            raise ConfigError("--store-key needs --api-key-env, the name to keep the key under")
        keys[api_key_env] = click.prompt("key", hide_input=True)
    model = ModelDefaults(name=name, base_url=base_url or None, api_key_env=api_key_env or None)
    environment.write_user_file(UserFile(model=model, keys=keys))
    click.echo(f"wrote {environment.user_file}")


@command.command("show")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
def show_(as_json: bool) -> None:
    """The stored choice. Keys are never printed."""
    from rllm.config.environment import read_environment

    environment = read_environment()
    stored = environment.read_user_file()
    if as_json:
        model = stored.model.model_dump() if stored.model else None
        click.echo(json.dumps({"file": str(environment.user_file), "model": model, "keys": sorted(stored.keys)}))
        return
    if stored.model is None:
        click.echo("no model is chosen; evaluations use 'embedded'. Choose one with: rllm model setup")
        return
    click.echo(f"model        {stored.model.name}")
    click.echo(f"base URL     {stored.model.base_url or '(a local backend)'}")
    click.echo(f"key          {stored.model.api_key_env or '(none)'}")
    click.echo(f"stored keys  {', '.join(sorted(stored.keys)) or '(none)'}")
    click.echo(f"file         {environment.user_file}")
