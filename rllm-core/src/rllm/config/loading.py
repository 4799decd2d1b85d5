"""From a YAML file, flags and `key=value` words to a configuration, with every fault reported at once.

Later wins: defaults, what suits the model, the user's own defaults (`~/.rllm/config.toml`), the file, flags, then
`key=value`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rllm.config import yaml_text
from rllm.config.keys import Flattener, KeyPath, dotted
from rllm.config.schema import EvalConfig, TrainConfig
from rllm.errors import ConfigError

__all__ = [
    "Loaded",
    "Source",
    "Suggest",
    "config_from_mapping",
    "config_to_json",
    "config_to_yaml",
    "load_eval_config",
    "load_train_config",
]

ConfigT = TypeVar("ConfigT", bound=BaseModel)
Suggest = Callable[[str, str], Mapping[str, Any]]
"""(backend, model) -> dotted keys that suit that model."""


class Source(StrEnum):
    """Where a value came from."""

    DEFAULT = "default"
    MODEL = "suits the model"
    """Suggested by the backend for this model."""
    USER_DEFAULT = "user default"
    FILE = "file"
    COMMAND_LINE = "command line"
    PYTHON = "python"


@dataclass(frozen=True, slots=True)
class Loaded(Generic[ConfigT]):
    """A configuration, and where each value that is not a default came from."""

    config: ConfigT
    sources: Mapping[str, Source]
    """Key -> source; a key that is missing has its default."""


def load_train_config(
    file: Path | None = None,
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    *,
    suggest: Suggest | None = None,
    flags_from: Source = Source.COMMAND_LINE,
) -> Loaded[TrainConfig]:
    """The configuration of a training run.

    `overrides` are `key=value` words whose values are YAML; `flags` maps keys to values, where None means that the
    flag was not given, and `flags_from` says where they come from. `suggest` fills in, for the chosen backend and
    model, keys that nothing else sets. Raises `ConfigError` with every fault.
    """
    layers = _given(TrainConfig, file, overrides, flags or {}, flags_from)
    if suggest is not None:
        backend, model = (layers.get(section, "name") for section in ("backend", "model"))
        if isinstance(backend, str) and isinstance(model, str):
            layers.add(suggest(backend, model), Source.MODEL, below=True)
    return layers.build()


def load_eval_config(
    file: Path | None = None,
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    *,
    user_defaults: Mapping[str, Any] | None = None,
    flags_from: Source = Source.COMMAND_LINE,
) -> Loaded[EvalConfig]:
    """The configuration of an evaluation.

    `user_defaults` is the model that `rllm model setup` stored (`Environment.eval_defaults`). It counts as a whole:
    as soon as anything about the model is given elsewhere, none of it applies, so that one server's name is never
    sent to another.
    """
    layers = _given(EvalConfig, file, overrides, flags or {}, flags_from)
    if user_defaults and not any(key.startswith("model.") for key in layers.sources):
        layers.add(user_defaults, Source.USER_DEFAULT)
    return layers.build()


def config_from_mapping(schema: type[ConfigT], data: Mapping[str, Any]) -> ConfigT:
    """A configuration from Python data with nested or dotted keys. Raises `ConfigError` with every fault."""
    layers = _Layers(schema)
    layers.add(data, Source.PYTHON)
    return layers.build().config


def config_to_json(config: BaseModel) -> dict[str, Any]:
    """The whole configuration as JSON data; `config_from_mapping` restores an equal one."""
    return config.model_dump(mode="json")


def config_to_yaml(config: BaseModel) -> str:
    """The whole configuration as a file that `load_train_config` (or `load_eval_config`) restores."""
    return yaml_text.dump(config_to_json(config))


def _given(
    schema: type[ConfigT], file: Path | None, overrides: Sequence[str], flags: Mapping[str, Any], flags_from: Source
) -> _Layers[ConfigT]:
    layers = _Layers(schema)
    if file is not None:
        layers.add(_read_file(file), Source.FILE)
    layers.add({key: value for key, value in flags.items() if value is not None}, flags_from)
    for word in overrides:
        layers.add_word(word)
    return layers


def _read_file(path: Path) -> Mapping[Any, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {str(path)!r}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {str(path)!r}: {error}") from None
    try:
        data = yaml_text.parse(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path}: got {data!r}, expected sections such as 'trainer:' with keys below them")
    return data


@dataclass(slots=True)
class _Layers(Generic[ConfigT]):
    """Values by key, later over earlier, and what was wrong with them."""

    schema: type[ConfigT]
    values: dict[str, Any] = field(default_factory=dict)
    """Nested, as the schema is."""
    sources: dict[str, Source] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def add(self, data: Mapping[Any, Any], source: Source, *, below: bool = False) -> None:
        """Put `data` over what is there, or below it: then only for keys without a value."""
        flattener = Flattener(self.schema, source.value)
        for path, value in flattener.flatten(data):
            if below and self._overlapping(dotted(path)):
                continue
            try:
                json.dumps(value)
            except (TypeError, ValueError):
                self.faults.append(f"{dotted(path)}: got {value!r} ({source.value}), expected plain data")
            else:
                self._put(path, value, source)
        self.faults += flattener.faults

    def add_word(self, word: str) -> None:
        """Put one `key=value` over what is there."""
        key, equals, text = word.partition("=")
        if not equals or not key.strip():
            self.faults.append(f"got {word!r} (command line), expected key=value, such as trainer.steps=200")
            return
        try:
            value = yaml_text.parse(text)
        except ValueError as error:
            self.faults.append(f"{key}: got {text!r} (command line), which is not YAML: {error}")
            return
        self.add({key.strip(): value}, Source.COMMAND_LINE)

    def _put(self, path: KeyPath, value: Any, source: Source) -> None:
        node = self.values
        for part in path[:-1]:
            child = node.get(part)
            if not isinstance(child, dict):
                child = node[part] = {}
            node = child
        node[path[-1]] = value
        key = dotted(path)
        for each in self._overlapping(key):
            del self.sources[each]
        self.sources[key] = source

    def _overlapping(self, key: str) -> list[str]:
        return [k for k in self.sources if k == key or k.startswith(f"{key}.") or key.startswith(f"{k}.")]

    def get(self, section: str, name: str) -> Any:
        """The value of `section.name`: as given, else the schema's default."""
        given = self.values.get(section, {})
        if name in given:
            return given[name]
        return getattr(self.schema(), section).model_dump()[name]

    def build(self) -> Loaded[ConfigT]:
        """The configuration, or `ConfigError` with every fault."""
        try:
            config = self.schema.model_validate_json(json.dumps(self.values), strict=True)
        except ValidationError as error:
            self.faults += [self._describe(each) for each in error.errors(include_url=False)]
            raise ConfigError(*self.faults) from None
        if self.faults:
            raise ConfigError(*self.faults)
        return Loaded(config, dict(self.sources))

    def _describe(self, error: ErrorDetails) -> str:
        path = tuple(str(part) for part in error["loc"])
        key = dotted(path)
        message = error["msg"]
        if error["type"] == "value_error":
            return f"{key}: {error['ctx']['error']}"
        given = error["input"]
        expected = message.removeprefix("Input should be ").replace("an object", "a mapping")
        if error["type"] == "missing":
            key, expected = dotted(path[:-1]), "more values"
        elif error["type"] == "too_long":
            expected = f"{error['ctx']['max_length']} values"
        return f"{key}: got {given!r} ({self._source(path)}), expected {expected}"

    def _source(self, path: KeyPath) -> str:
        keys = (dotted(path[:size]) for size in range(len(path), 0, -1))
        return next((self.sources[key].value for key in keys if key in self.sources), Source.DEFAULT.value)
