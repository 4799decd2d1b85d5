"""Reading exact decimal numbers as people and models write them: `$1,234.50`, `-3`, `29.00`, `18 dollars`,
`\\frac{1}{2}`.

Policies: a percent sign is dropped (`13.20%` is 13.2); thousands separators must stand in the right places;
only ASCII digits count; a minus between two values is an operator and not a sign.
"""

from __future__ import annotations

import re
from collections import deque
from fractions import Fraction

__all__ = ["last_number", "parse_number"]

MAX_ANSWER_CHARS = 200
"""An answer is short; anything longer is not read."""
MAX_DIGITS = 60
"""A longer number is not read."""

_UNSIGNED = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_NUMBER = re.compile(
    rf"""(?P<sign>(?<![\w)\]}}%.,])[-−+])?(?:\\?\$\s?(?P<inner>[-−])?)?  # -$5 or $-5
         (?<![0-9A-Za-z_.,])(?P<digits>{_UNSIGNED})
         (?![0-9]|[.,][0-9]|[eE][-+]?[0-9])""",
    re.VERBOSE,
)
_FRACTION = re.compile(r"([-−+]?)\s*(?:\\[dt]?frac\{([0-9]+)\}\{([0-9]+)\}|([0-9]+)\s*/\s*([0-9]+))")
_WRAPPER = re.compile(
    r"\\(?:text|textbf|mathrm|mathbf|mbox|boxed)\s*\{([^{}]*)\}|\\(?:left|right)\b|\\[!,;: ()\[\]]|\*\*"
)
_THOUSANDS = re.compile(r"(?<=[0-9])(?:\{,\}|,?\\[,!])(?=[0-9]{3}(?![0-9]))")
_FORBIDDEN = re.compile(r"\\(?![$%])|[\^*+<>×÷√~]")
_DIGITS = re.compile(r"[0-9][0-9.,]*")
_LEADING_MINUS = re.compile(r"^([-−])\s+")


def parse_number(text: str) -> Fraction | None:
    """The one number that a short answer states, exactly; None if it states none, several or a formula.

    What precedes the last `=` is ignored, and so are currency signs, units, percent signs and a final period.
    """
    if len(text) > MAX_ANSWER_CHARS or any(each.isnumeric() and not each.isascii() for each in text):
        return None
    answer = _THOUSANDS.sub(",", text)
    while (unwrapped := _WRAPPER.sub(r" \1 ", answer)) != answer:
        answer = unwrapped
    answer = answer.rpartition("=")[2].strip().strip("$").strip()
    if fraction := _FRACTION.fullmatch(answer.rstrip(".").rstrip()):
        return _fraction(fraction)
    answer = _LEADING_MINUS.sub(r"\1", answer)
    number = _NUMBER.search(answer)
    if number is None or len(_DIGITS.findall(answer)) != 1:
        return None
    rest = f"{answer[: number.start()]} {answer[number.end() :]}"
    return None if _FORBIDDEN.search(rest) else _value(number)


def last_number(text: str) -> Fraction | None:
    """The last number in running text, or None: a lenient secondary reading, not a final answer."""
    last = deque(_NUMBER.finditer(text), maxlen=1)
    return _value(last[0]) if last else None


def _value(match: re.Match[str]) -> Fraction | None:
    digits = match["digits"].replace(",", "")
    if len(digits) > MAX_DIGITS:
        return None
    negative = (match["sign"] or match["inner"] or "+") in "-−"
    return -Fraction(digits) if negative else Fraction(digits)


def _fraction(match: re.Match[str]) -> Fraction | None:
    sign, *parts = match.groups()
    top, bottom = (int(part) for part in parts if part is not None)
    if bottom == 0:
        return None
    return Fraction(-top if sign in ("-", "−") else top, bottom)
