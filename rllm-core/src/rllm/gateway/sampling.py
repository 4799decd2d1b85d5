"""Sampling parameters: what a client asked for under any alias, what the session enforces, and what results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rllm.errors import GatewayError, RequestError
from rllm.plugins.suggest import did_you_mean
from rllm.types import JsonDict

__all__ = ["ALIASES", "CANONICAL", "ClientSampling", "check_enforced", "resolve"]

CANONICAL = ("temperature", "top_p", "top_k", "max_tokens", "stop", "seed")

ALIASES: Mapping[str, tuple[str, ...]] = {
    "temperature": ("temperature",),
    "top_p": ("top_p", "topP"),
    "top_k": ("top_k", "topK"),
    "max_tokens": ("max_completion_tokens", "max_tokens", "max_output_tokens", "maxOutputTokens"),
    "stop": ("stop", "stop_sequences", "stopSequences"),
    "seed": ("seed",),
}
"""Canonical name to every spelling in the protocols, the one that wins first."""


@dataclass(slots=True)
class ClientSampling:
    """What the client asked for; None where it said nothing."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> ClientSampling:
        """Read the parameters of a JSON body. Raises `RequestError` naming the one that is wrong."""
        found = cls()
        for name, aliases in ALIASES.items():
            for alias in aliases:
                value = body.get(alias)
                if value is not None:
                    try:
                        setattr(found, name, _CHECKS[name](value))
                    except ValueError as error:
                        raise RequestError(f"{alias} is {value!r}, expected {error}") from None
                    break
        return found


def _number(value: Any, expected: str, low: float, high: float = math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(expected)
    return float(value)


def _integer(value: Any, expected: str, low: int) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(expected)
    return value


def _temperature(value: Any) -> float:
    found = _number(value, "a finite number, 0 or more", 0.0)
    if math.isinf(found):
        raise ValueError("a finite number, 0 or more")
    return found


def _top_p(value: Any) -> float:
    found = _number(value, "a number above 0 and at most 1", 0.0, 1.0)
    if not found:
        raise ValueError("a number above 0 and at most 1")
    return found


def _stop(value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(each, str) and each for each in values):
        raise ValueError("a non-empty string or a list of them")
    return tuple(values)


_CHECKS: Mapping[str, Any] = {
    "temperature": _temperature,
    "top_p": _top_p,
    "top_k": lambda value: max(0, _integer(value, "a whole number, 0 or more (0 and -1 mean all)", -1)),
    "max_tokens": lambda value: _integer(value, "a whole number, 1 or more", 1),
    "stop": _stop,
    "seed": lambda value: _integer(value, "a whole number", -(2**63)),
}


def check_enforced(sampling: JsonDict) -> JsonDict:
    """A session's parameters, checked and normalised; None values are left out. Raises `GatewayError`."""
    checked: JsonDict = {}
    for name, value in sampling.items():
        if name not in CANONICAL:
            raise GatewayError(
                f"sampling parameter {name!r} is unknown; expected one of {', '.join(CANONICAL)}"
                f"{did_you_mean(name, CANONICAL)}"
            )
        if value is not None:
            try:
                checked[name] = _CHECKS[name](value)
            except ValueError as error:
                raise GatewayError(f"sampling parameter {name} is {value!r}, expected {error}") from None
    return checked


def resolve(client: ClientSampling, enforced: JsonDict, default_max_tokens: int | None) -> JsonDict:
    """Canonical parameters of one call: enforced ones win, `max_tokens` is the smaller; unset ones are absent."""
    result: JsonDict = {}
    for name in CANONICAL:
        value = getattr(client, name)
        if name in enforced:
            cap = enforced[name]
            value = min(value, cap) if name == "max_tokens" and value is not None else cap
        if value is not None:
            result[name] = value
    if default_max_tokens is not None and "max_tokens" not in result:
        result["max_tokens"] = default_max_tokens
    return result
