"""Values that people write, as the type that is wanted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obdsd import InputError
from obdsd.convert import MISSING, convert

Choice = Literal["avg", "avg+max", "token"]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (int, "12", 12),
        (int, " 12", 12),
        (int, 12.0, 12),
        (int, "-3", -3),
        (int, 10**30, 10**30),
        (float, "1e-5", 1e-5),
        (float, 3, 3.0),
        (bool, "yes", True),
        (bool, "No", False),
        (bool, "TRUE", True),
        (bool, False, False),
        (str, "text", "text"),
        (str, 5, "5"),
        (str, Path("a/b"), "a/b"),
        (Any, [1], [1]),
        (Choice, "avg+max", "avg+max"),
        (Literal[16, 32], "16", 16),
        (float | None, "none", None),
        (float | None, None, None),
        (float | None, "0.5", 0.5),
        (str | None, "none", "none"),  # a text may be that word
        (Choice | None, "token", "token"),
        (tuple[int, ...], "1,2, 4,", (1, 2, 4)),
        (tuple[int, ...], [1, "2"], (1, 2)),
        (tuple[int, ...], 8, (8,)),
        (tuple[int, ...], "", ()),
        (list[int], "512,1024", [512, 1024]),
        (list[Choice], ["avg", "token"], ["avg", "token"]),
        (Sequence[float], "1,2", (1.0, 2.0)),
        (dict, {1: 2}, {1: 2}),
    ],
)
def test_a_value_becomes_its_type(kind, value, expected):
    made = convert("x", kind, value)
    assert made == expected
    assert type(made) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (int, "1.5", r"^x=1\.5 must be a whole number$"),
        (int, 1.5, r"^x=1\.5 must be a whole number$"),
        (int, "many", r"^x=many must be a whole number$"),
        (int, True, r"^x=True must be a whole number$"),
        (int, float("inf"), r"^x=inf must be a whole number$"),
        (int, None, r"^x=None must be a whole number$"),
        (float, "much", r"^x=much must be a number$"),
        (float, [1], r"^x=\[1\] must be a number$"),
        (bool, "perhaps", r"^x=perhaps must be true or false$"),
        (bool, 1, r"^x=1 must be true or false$"),
        (str, [1], r"^x=\[1\] must be a text$"),
        (str, True, r"^x=True must be a text$"),
        (Choice, "avg-max", r"^x=avg-max must be one of avg, avg\+max, token; did you mean avg\+max\?$"),
        (Choice, "zzz", r"^x=zzz must be one of avg, avg\+max, token$"),
        (tuple[int, ...], "1,x", r"^x=x must be a whole number$"),
        (int | None, "x", r"^x=x must be a whole number$"),
    ],
)
def test_what_is_none_of_it_is_one_line(kind, value, message):
    with pytest.raises(InputError, match=message):
        convert("x", kind, value)


@given(st.integers() | st.floats(allow_nan=False))
def test_numbers_survive_being_written(number):
    assert convert("x", type(number), str(number)) == number


def test_a_missing_default_says_so():
    assert repr(MISSING) == "MISSING"
