"""The one module that reads environment variables and the user's own file, `~/.rllm/config.toml`.

    RLLM_HOME       folder of the user's file and runs     ~/.rllm
    RLLM_RUNS       folder of the runs                     $RLLM_HOME/runs

`RLLM_PLUGINS` belongs to `rllm.plugins`, which does not depend on this package.
"""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rllm.errors import ConfigError

__all__ = ["Environment", "ModelDefaults", "UserFile", "read_environment", "runs_folder"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ModelDefaults(_Table):
    """The model that evaluations use when none is named."""

    name: str = Field(min_length=1)
    """The server's name for it, or one that a backend can open."""
    base_url: str | None = None
    """An OpenAI-compatible server."""
    api_key_env: str | None = None
    """Environment variable that holds the server's key; `keys` is asked when it is not set."""


class UserFile(_Table):
    """What `config.toml` holds."""

    model: ModelDefaults | None = None
    """The model that evaluations use when none is named."""
    keys: dict[str, str] = Field(default_factory=dict, repr=False)
    """Environment variable -> key, used when the variable is not set."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What the process was started with."""

    home: Path
    runs: Path
    variables: Mapping[str, str] = field(repr=False)

    @property
    def user_file(self) -> Path:
        """Where the user's file is, or would be."""
        return self.home / "config.toml"

    def read_user_file(self) -> UserFile:
        """The user's file; an empty one when there is none. Raises `ConfigError` with every fault."""
        try:
            data = tomllib.loads(self.user_file.read_text(encoding="utf-8"))
            return UserFile.model_validate(data, strict=True)
        except FileNotFoundError:
            return UserFile()
        except ValidationError as error:
            faults = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            raise ConfigError(*(f"{self.user_file}: {fault}" for fault in faults)) from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"cannot read {str(self.user_file)!r}: {error}") from None

    def write_user_file(self, content: UserFile) -> None:
        """Replace the user's file in one step, readable by nobody else. Raises `ConfigError` when it cannot."""
        text = _to_toml(content.model_dump(mode="json", exclude_none=True))
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.home, prefix=".config-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    os.fchmod(file.fileno(), 0o600)
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(self.user_file)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise ConfigError(f"cannot write {str(self.user_file)!r}: {error}") from None

    def eval_defaults(self) -> dict[str, Any]:
        """The stored model as the lowest layer of an evaluation's configuration."""
        model = self.read_user_file().model
        return {} if model is None else {"model": model.model_dump(exclude_none=True)}

    def api_key(self, variable: str | None) -> str | None:
        """The key in that variable, else the one stored under its name; None without a name.

        Raises `ConfigError` when a name is given and there is no such key.
        """
        if variable is None:
            return None
        value = self.variables.get(variable) or self.read_user_file().keys.get(variable)
        if not value:
            raise ConfigError(
                f"the environment variable {variable!r} is not set; set it, or store the key with `rllm model setup`"
            )
        return value


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """The environment of this process, or of the given variables. An empty variable counts as not set."""
    variables = dict(os.environ if variables is None else variables)
    home = Path(variables.get("RLLM_HOME") or "~/.rllm").expanduser().absolute()
    runs = variables.get("RLLM_RUNS")
    return Environment(
        home=home,
        runs=Path(runs).expanduser().absolute() if runs else home / "runs",
        variables=variables,
    )


def runs_folder() -> Path:
    """Where runs are kept."""
    return read_environment().runs


def _to_toml(tables: Mapping[str, Mapping[str, str]]) -> str:
    lines: list[str] = []
    for table, entries in tables.items():
        if entries:
            lines += [f"[{table}]", *(f"{_quote(key)} = {_quote(value)}" for key, value in entries.items()), ""]
    return "\n".join(lines)


def _quote(text: str) -> str:
    """A TOML basic string: JSON's escapes, and the one control character that JSON leaves as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
