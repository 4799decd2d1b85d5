"""The rows of `--explain`: each key, its value, where the value came from and what it means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from rllm.config.keys import KeyPath, all_keys, dotted
from rllm.config.loading import Loaded, Source

__all__ = ["ExplainRow", "explain"]


@dataclass(frozen=True, slots=True)
class ExplainRow:
    """One key of a loaded configuration."""

    key: str
    value: Any
    """Plain JSON data."""
    source: Source
    meaning: str


def explain(loaded: Loaded[Any]) -> list[ExplainRow]:
    """One row for each key, in the schema's order; a plugin's options have a row each."""
    config: BaseModel = loaded.config
    data = config.model_dump(mode="json")
    rows = []
    for path, meaning in all_keys(type(config)):
        for leaf, value in _leaves(path, _at(data, path)):
            key = dotted(leaf)
            rows.append(ExplainRow(key, value, loaded.sources.get(key, Source.DEFAULT), meaning))
    return rows


def _at(data: Mapping[str, Any], path: KeyPath) -> Any:
    value: Any = data
    for part in path:
        value = value[part]
    return value


def _leaves(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves((*path, key), item)
    else:
        yield path, value
