"""The gateway's URLs: `/sessions/{session}[/agents/{role}]/v1/…`, with names that may hold any characters."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

from rllm.errors import GatewayError

__all__ = ["Route", "segment", "split"]

_ESCAPE = "~"
"""Begins segments whose name would not survive as it is: `.` and `..`, which clients resolve, and this character."""


class Route(NamedTuple):
    """Where a request goes."""

    session: str
    role: str
    tail: str
    """The rest of the path, `v1/chat/completions`, without the query."""


def segment(name: str) -> str:
    """A session's id as one segment of a path. Raises `GatewayError` for what cannot be one."""
    if not name:
        raise GatewayError("a session's id must not be empty")
    try:
        quoted = quote(name, safe="")
    except UnicodeEncodeError:
        raise GatewayError(f"session id {name!r} is not valid Unicode") from None
    return _ESCAPE + quoted if name in (".", "..") or name.startswith(_ESCAPE) else quoted


def split(target: str) -> Route | None:
    """The route of a request target as it came, still quoted; None when it is not a session's."""
    parts = target.partition("?")[0].split("/", 5)
    if len(parts) < 4 or parts[0] or parts[1] != "sessions" or not parts[2]:
        return None
    session = unquote(parts[2].removeprefix(_ESCAPE))
    if parts[3] == "agents":
        if len(parts) < 6 or not parts[4]:
            return None
        return Route(session, unquote(parts[4]), parts[5])
    return Route(session, "default", "/".join(parts[3:]))
