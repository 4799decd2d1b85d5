"""JSON to and from bytes, several times faster than the standard library for what passes through here by the megabyte.

What orjson refuses (NaN, half surrogate pairs, integers of more than 64 bits) is left to the standard library, so that
whatever Python's clients send is understood and sent on.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

__all__ = ["dumps", "loads"]


def loads(data: bytes) -> Any:
    """The value. Raises ValueError for what is not JSON, RecursionError for what is nested beyond reason."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)


def dumps(value: Any) -> bytes:
    """Compact JSON in UTF-8. NaN and infinities become null."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()
