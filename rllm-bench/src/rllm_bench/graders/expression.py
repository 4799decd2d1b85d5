"""Arithmetic expressions: a small parser with exact values. It never calls `eval`.

    sum     = product { ("+" | "-") product }
    product = factor { ("*" | "/") factor }
    factor  = "-" factor | "(" sum ")" | integer

`×`, `÷` and `−` are read as `*`, `/` and `-`. Integers are ASCII digits without leading zeros. There is no
power, no floor division, no decimal point, no unary plus and no implied product.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Expression", "ExpressionError", "parse_expression"]

MAX_CHARS = 200
MAX_NESTING = 32
"""Parentheses and unary minus signs inside each other."""

_TOKEN = re.compile(r"\s*(?:(0|[1-9][0-9]*)(?![0-9])|([-+*/()]))")
_ALIASES = str.maketrans("×÷−", "*/-")


class ExpressionError(ValueError):
    """The text is not an expression of this grammar, or it has no value."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression."""

    value: Fraction
    literals: tuple[int, ...]
    """The integers as written, in order."""


def parse_expression(text: str) -> Expression:
    """Parse and evaluate; raises `ExpressionError`. Takes time in proportion to the text, 200 characters at
    most."""
    if len(text) > MAX_CHARS:
        raise ExpressionError(f"{len(text)} characters; at most {MAX_CHARS} are read")
    parser = _Parser(_tokens(text.translate(_ALIASES)))
    value = parser.sum(0)
    if parser.token is not None:
        raise ExpressionError(f"unexpected {parser.token!r}")
    return Expression(value, tuple(each for each in parser.tokens if isinstance(each, int)))


def _tokens(text: str) -> list[int | str]:
    text = text.rstrip()
    tokens: list[int | str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpressionError(f"unexpected {text[position:].lstrip()[:10]!r}")
        tokens.append(int(match[1]) if match[1] is not None else match[2])
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent over tokens; integers are `int`, everything else is `str`."""

    def __init__(self, tokens: list[int | str]) -> None:
        self.tokens = tokens
        self.position = 0

    @property
    def token(self) -> int | str | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def take(self, *wanted: str) -> str | None:
        token = self.token
        if isinstance(token, str) and token in wanted:
            self.position += 1
            return token
        return None

    def sum(self, depth: int) -> Fraction:
        value = self.product(depth)
        while operator := self.take("+", "-"):
            term = self.product(depth)
            value = value + term if operator == "+" else value - term
        return value

    def product(self, depth: int) -> Fraction:
        value = self.factor(depth)
        while operator := self.take("*", "/"):
            factor = self.factor(depth)
            if operator == "*":
                value *= factor
            elif factor == 0:
                raise ExpressionError("division by zero")
            else:
                value /= factor
        return value

    def factor(self, depth: int) -> Fraction:
        if depth > MAX_NESTING:
            raise ExpressionError(f"nested more than {MAX_NESTING} deep")
        if self.take("-"):
            return -self.factor(depth + 1)
        if self.take("("):
            value = self.sum(depth + 1)
            if not self.take(")"):
                raise ExpressionError("a parenthesis is not closed")
            return value
        token = self.token
        if not isinstance(token, int):
            raise ExpressionError("it ends too early" if token is None else f"unexpected {token!r}")
        self.position += 1
        return Fraction(token)
