"""The keys that a schema has: walking them, finding the nearest, and turning nested data into `key -> value`."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

__all__ = ["Flattener", "KeyPath", "all_keys", "dotted", "nearest"]

KeyPath = tuple[str, ...]
"""A key, split at its dots."""


def dotted(path: KeyPath) -> str:
    """The key as a person writes it."""
    return ".".join(path)


def is_section(annotation: Any) -> typing.TypeGuard[type[BaseModel]]:
    """Whether a field of this type is a group of keys."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def is_free(annotation: Any) -> bool:
    """Whether a field of this type holds keys that the schema does not list."""
    return typing.get_origin(annotation) is dict


def all_keys(model: type[BaseModel]) -> Iterator[tuple[KeyPath, str]]:
    """Every key of the schema that holds a value, with its description, in the schema's order."""
    for path, field in _fields(model):
        if not is_section(field.annotation):
            yield path, field.description or ""


def _fields(model: type[BaseModel], prefix: KeyPath = ()) -> Iterator[tuple[KeyPath, FieldInfo]]:
    """Sections and keys, each section before what is in it."""
    for name, field in model.model_fields.items():
        path = (*prefix, name)
        yield path, field
        if is_section(field.annotation):
            yield from _fields(field.annotation, path)


def nearest(model: type[BaseModel], path: KeyPath) -> str | None:
    """The existing key most like `path`, if any is. An option's own name is kept."""
    best, best_score = None, 0.55
    for candidate, field in _fields(model):
        size = len(candidate) if is_free(field.annotation) else len(path)
        score = _likeness(path[:size], candidate) - (0.1 if is_section(field.annotation) else 0.0)
        if score > best_score:
            best, best_score = (*candidate, *path[size:]), score
    return dotted(best) if best is not None else None


def _likeness(path: KeyPath, candidate: KeyPath) -> float:
    """Between 0 and 1; the last part counts more than the sections before it."""
    leaf = difflib.SequenceMatcher(None, path[-1].casefold(), candidate[-1]).ratio()
    if len(path) == len(candidate) == 1:
        return leaf
    head = difflib.SequenceMatcher(None, dotted(path[:-1]).casefold(), dotted(candidate[:-1])).ratio()
    return 0.6 * leaf + 0.4 * head


class Flattener:
    """Turns data from one place into values by key. What does not fit the schema becomes a fault."""

    def __init__(self, schema: type[BaseModel], where: str) -> None:
        self._schema = schema
        self._where = where
        self.faults: list[str] = []

    def flatten(self, data: Mapping[Any, Any]) -> Iterator[tuple[KeyPath, Any]]:
        """Each value with its key. Keys may be nested, dotted or both.

        An empty section (None) holds no values. A plugin's options are split as far as their mappings go.
        """
        yield from self._section(self._schema, data, ())

    def _section(
        self, model: type[BaseModel], data: Mapping[Any, Any], prefix: KeyPath
    ) -> Iterator[tuple[KeyPath, Any]]:
        for raw, value in data.items():
            yield from self._field(model, prefix, tuple(str(raw).split(".")), value)

    def _field(
        self, model: type[BaseModel], prefix: KeyPath, parts: KeyPath, value: Any
    ) -> Iterator[tuple[KeyPath, Any]]:
        path, rest = (*prefix, parts[0]), parts[1:]
        if parts[0] not in model.model_fields:
            self._unknown((*path, *rest), value)
            return
        annotation = model.model_fields[parts[0]].annotation
        if is_section(annotation):
            if rest:
                yield from self._field(annotation, path, rest, value)
            elif isinstance(value, Mapping):
                yield from self._section(annotation, value, path)
            elif value is not None:
                keys = ", ".join(annotation.model_fields)
                self._fault(path, value, f"expected a section; its keys are {keys}")
        elif is_free(annotation):
            if rest or isinstance(value, Mapping):
                yield from self._free((*path, *rest), value, top=not rest)
            else:
                yield path, value
        elif rest:
            self._unknown((*path, *rest), value)
        else:
            yield path, value

    def _free(self, path: KeyPath, value: Any, *, top: bool) -> Iterator[tuple[KeyPath, Any]]:
        if not all(path):
            self._fault(path, value, "expected a name after each dot")
        elif not isinstance(value, Mapping):
            yield path, value
        elif not value and not top:
            yield path, {}
        else:
            for key, item in value.items():
                if isinstance(key, str):
                    yield from self._free((*path, key), item, top=False)
                else:
                    self._fault(path, key, "expected text as the key")

    def _unknown(self, path: KeyPath, value: Any) -> None:
        """One fault for each value under an unknown key, so that each can name its nearest."""
        if isinstance(value, Mapping) and value:
            for key, item in value.items():
                self._unknown((*path, *str(key).split(".")), item)
            return
        near = nearest(self._schema, path)
        hint = f"; did you mean {near!r}?" if near else ""
        self.faults.append(f"no key is called {dotted(path)!r} ({self._where}){hint}")

    def _fault(self, path: KeyPath, value: Any, expected: str) -> None:
        self.faults.append(f"{dotted(path)}: got {value!r} ({self._where}), {expected}")
