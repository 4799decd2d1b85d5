from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllm_bench.graders import last_number, parse_number

STATED = [
    ("18", "18"), ("0018", "18"), ("$18", "18"), (r"\$18", "18"), ("18 dollars", "18"), ("18.", "18"),
    ("29.00.", "29"), (".5", "1/2"), ("1,234.50", "2469/2"), ("$70,000", "70000"), ("70{,}000",
    "70000"), (r"10,\!000", "10000"), (r"18\,000", "18000"), ("-3", "-3"), ("- 3", "-3"), ("−3",
    "-3"), ("+3", "3"), ("-$5", "-5"), ("$-5", "-5"), ("x = 18", "18"), ("3*6=18", "18"),
    (r"\text{13}", "13"), (r"18\text{ cm}", "18"), (r"\frac{1}{2}", "1/2"), (r"-\dfrac{3}{4}",
    "-3/4"), ("36/2", "18"), ("13.20%", "66/5"), (r"13.20\%", "66/5"), ("18-inch", "18"),
    ("**73**", "73"), (r"\boxed{5}", "5"), (r"\(5\)", "5"), ("72 clips, altogether", "72"),
]  # fmt: skip
NOT_STATED = [
    "", "x", "five", "=", "18 or 20", "3 1/2", "2^3", "10^{99999}", r"\sqrt{4}", "√4", "4+x",
    "x<4", "7 \\times 3", "1,23", "1,000,00", "1.2.3", "5,5", "5-3", "12:00", "1e5", "1/0",
    r"\frac{1}{0}", "9" * 100, "٣", "٣5", "5²", "3½", r"3\,5", r"\text{5}6", "≈ " * 200 + "5",
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), STATED)
def test_a_short_answer_states_its_number(text: str, value: str) -> None:
    assert parse_number(text) == Fraction(value)


@pytest.mark.parametrize("text", NOT_STATED)
def test_an_answer_that_states_no_single_number_is_refused(text: str) -> None:
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("the total is $29.00.", 29),
        ("The total is 72 clips, altogether.", 72),
        ("… profit of $200,000 - $130,000 = $70,000.", 70000),
        ("Final Answer: **73**", 73),
        ("20 - 4", 4),
        ("20-4", 4),
        ("it is -3", -3),
        ("no number", None),
    ],
)
def test_the_last_number_of_a_text(text: str, value: int | None) -> None:
    assert last_number(text) == value


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=3))
def test_any_decimal_is_read_back_exactly(value: object) -> None:
    for text in (f"{value:f}", f"{value:,f}", f"$ {value:f} ".replace("$ -", "-$")):
        assert parse_number(text) == Fraction(str(value))
        assert last_number(f"So we get {text} in all.") == Fraction(str(value))
