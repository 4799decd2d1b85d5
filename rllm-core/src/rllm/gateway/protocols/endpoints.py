"""Which path of a session speaks which protocol, and what it is for.

A base URL with one version too many (`…/v1` where the client adds `/v1/messages` itself) is understood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import unquote

from rllm.gateway.protocols.chat import ChatAdapter
from rllm.gateway.protocols.completions import CompletionsAdapter
from rllm.gateway.protocols.gemini import GeminiAdapter
from rllm.gateway.protocols.messages import COUNT, MessagesAdapter
from rllm.gateway.protocols.one_model import GeminiModel, OneModel
from rllm.gateway.protocols.responses import ResponsesAdapter
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
_MESSAGES = MessagesAdapter()
_RESPONSES = ResponsesAdapter()

_GEMINI = GeminiAdapter()
_ACTIONS = {
    "generateContent": Operation.REPLY,
    "streamGenerateContent": Operation.REPLY,
    "countTokens": Operation.COUNT,
}
_ANY = "-"
"""Stands for a model where the path alone says whose list is meant."""

_PATHS: Mapping[str, Endpoint] = {
    "v1/chat/completions": Endpoint(_CHAT, Operation.REPLY),
    "v1/responses": Endpoint(_RESPONSES, Operation.REPLY),
    "v1/responses/input_tokens": Endpoint(_RESPONSES, Operation.COUNT),
    "v1/messages": Endpoint(_MESSAGES, Operation.REPLY),
    "v1/messages/count_tokens": Endpoint(_MESSAGES, Operation.COUNT, action=COUNT),
    "v1/completions": Endpoint(CompletionsAdapter(), Operation.REPLY),
    "v1/models": Endpoint(_CHAT, Operation.MODELS),
    "v1beta/models": Endpoint(_GEMINI, Operation.MODELS, _ANY),
}
_MODEL = re.compile(r"(v1(?:beta)?)/models/(.+)")
_SECOND_VERSION = re.compile(r"v1/(?=v1(?:beta)?/)")


def find(tail: str) -> Endpoint | None:
    """What is served at the path after the session, or None."""
    found = _PATHS.get(tail)
    if found is None and (second := _SECOND_VERSION.match(tail)):
        return find(tail[second.end() :])
    if found is None and (named := _MODEL.fullmatch(tail)):
        return _of_model(named[1], unquote(named[2]))
    return found


def _of_model(version: str, name: str) -> Endpoint:
    """A model's own path; its name may hold slashes and colons."""
    model, _, action = name.rpartition(":")
    if model and (operation := _ACTIONS.get(action)):
        return Endpoint(_GEMINI, operation, model, action)
    return Endpoint(OneModel() if version == "v1" else GeminiModel(), Operation.MODELS, name)


def adapter_of_headers(headers: Mapping[str, str]) -> Adapter:
    """The protocol that a client gives away by its headers, for paths that several share and for errors."""
    if "x-goog-api-key" in headers or "x-goog-api-client" in headers:
        return _GEMINI
    if "anthropic-version" in headers:
        return _MESSAGES
    return _CHAT
