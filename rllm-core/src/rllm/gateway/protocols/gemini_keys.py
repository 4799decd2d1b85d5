"""Gemini's JSON as clients really write it: either spelling of a key, one object for a list, OpenAPI's schemas.

The REST interface takes `functionCall` and `function_call` alike, since protocol buffers do; both are met.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from rllm.errors import RequestError
from rllm.types import JsonDict

__all__ = ["entry", "json_schema", "listed", "show"]


def entry(of: Mapping[str, Any], name: str) -> Any:
    """The value under `name`, written in camel case here, or under its other spelling; None where there is none."""
    found = of.get(name)
    return of.get(_snake(name)) if found is None else found


def listed(value: Any, where: str) -> list[JsonDict]:
    """A list of objects; one object alone counts as a list of it, and nothing as an empty list."""
    values = [] if value is None else value if isinstance(value, list) else [value]
    for at, each in enumerate(values):
        if not isinstance(each, dict):
            raise RequestError(f"{where}[{at}] is {show(each)}, expected an object")
    return values


def show(value: Any) -> str:
    """A value as an error message quotes it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
"""Protocol buffers write 64-bit integers as text."""
_SCHEMAS = frozenset({"items", "anyOf", "prefixItems", "additionalProperties"})
_NAMED_SCHEMAS = frozenset({"properties", "$defs", "defs"})
_DROPPED = frozenset({"nullable", "propertyOrdering"})
_KEYWORDS = _COUNTS | _SCHEMAS | _DROPPED


def json_schema(value: Any) -> Any:
    """JSON schema of an OpenAPI schema: its types are in upper case, and `nullable` stands for the type `null`."""
    if isinstance(value, list):
        return [json_schema(each) for each in value]
    if not isinstance(value, dict):
        return value
    made: JsonDict = {}
    for key, inner in value.items():
        name = camel if (camel := _camel(key)) in _KEYWORDS else key
        if name in _NAMED_SCHEMAS and isinstance(inner, dict):
            made[name] = {each: json_schema(schema) for each, schema in inner.items()}
        elif name in _SCHEMAS:
            made[name] = json_schema(inner)
        elif name == "type" and isinstance(inner, str):
            if (lowered := inner.lower()) in _TYPES:
                made[name] = lowered
        elif name in _COUNTS and isinstance(inner, str) and inner.isdecimal():
            made[name] = int(inner)
        elif name not in _DROPPED:
            made[name] = inner
    if value.get("nullable") is True and isinstance(kind := made.get("type"), str) and kind != "null":
        made["type"] = [kind, "null"]
    return made


@cache
def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name)


def _camel(name: str) -> str:
    if "_" not in name:
        return name
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
