"""Which path of a session speaks which protocol, and what it is for.

A base URL with one version too many (`…/v1` where the client adds `/v1/messages` itself) is understood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from rllm.gateway.protocols.chat import ChatAdapter
from rllm.gateway.wire import Adapter

__all__ = ["Endpoint", "Operation", "adapter_of_headers", "find"]


class Operation(StrEnum):
    """What a client wants there."""

    REPLY = "reply"
    COUNT = "count"
    """The number of tokens of a prompt."""
    MODELS = "models"
    """A list of models."""


class Endpoint(NamedTuple):
    """One path, understood."""

    adapter: Adapter
    operation: Operation
    model: str = ""
    action: str = ""


_CHAT = ChatAdapter()

_PATHS: Mapping[str, Endpoint] = {
    "v1/chat/completions": Endpoint(_CHAT, Operation.REPLY),
    "v1/models": Endpoint(_CHAT, Operation.MODELS),
}
_SECOND_VERSION = re.compile(r"v1/(?=v1(?:beta)?/)")


def find(tail: str) -> Endpoint | None:
    """What is served at the path after the session, or None."""
    found = _PATHS.get(tail)
    if found is None and (second := _SECOND_VERSION.match(tail)):
        return find(tail[second.end() :])
    return found


def adapter_of_headers(headers: Mapping[str, str]) -> Adapter:
    """The protocol that a client gives away by its headers, for paths that several share and for errors."""
    return _CHAT
