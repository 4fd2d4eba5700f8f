"""Values that people write, as the type that is wanted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obdsd import InputError
from obdsd.convert import convert

Choice = Literal["avg", "avg+max", "token"]
INF = float("inf")
GOOD = [  # a type, and pairs of a value and what it becomes
    (int, [("12", 12), (" 12", 12), (12.0, 12), ("-3", -3), (10**30, 10**30)]),
    (float, [("1e-5", 1e-5), (3, 3.0)]),
    (bool, [("yes", True), ("No", False), ("TRUE", True), (False, False)]),
    (str, [("text", "text"), (5, "5"), (Path("a/b"), "a/b")]),
    (Any, [([1], [1])]),
    (Choice, [("avg+max", "avg+max")]),
    (Literal[16, 32], [("16", 16)]),
    (float | None, [("none", None), (None, None), ("0.5", 0.5)]),
    (str | None, [("none", "none")]),  # a text may be that word
    (Choice | None, [("token", "token")]),
    (tuple[int, ...], [("1,2, 4,", (1, 2, 4)), ([1, "2"], (1, 2)), (8, (8,)), ("", ())]),
    (list[int], [("512,1024", [512, 1024])]),
    (list[Choice], [(["avg", "token"], ["avg", "token"])]),
    (Sequence[float], [("1,2", (1.0, 2.0))]),
    (dict, [({1: 2}, {1: 2})]),
]


@pytest.mark.parametrize(("kind", "value", "expected"), [(kind, *pair) for kind, pairs in GOOD for pair in pairs])
def test_a_value_becomes_its_type(kind, value, expected):
    made = convert("x", kind, value)
    assert made == expected
    assert type(made) is type(expected)


BAD = [  # a type, what is said, and values that are none of it
    (int, "must be a whole number", ["1.5", 1.5, "many", True, INF, None]),
    (int | None, "must be a whole number", ["x"]),
    (tuple[int, ...], "must be a whole number", ["x"]),
    (float, "must be a number", ["much", [1]]),
    (bool, "must be true or false", ["perhaps", 1]),
    (str, "must be a text", [[1], True]),
    (Choice, "must be one of avg, avg+max, token; did you mean avg+max?", ["avg-max"]),
    (Choice, "must be one of avg, avg+max, token", ["zzz"]),
]


@pytest.mark.parametrize(("kind", "rule", "value"), [(kind, rule, value) for kind, rule, values in BAD for value in values])
def test_what_is_none_of_it_is_one_line(kind, rule, value):
    with pytest.raises(InputError) as refusal:
        convert("x", kind, value)
    assert str(refusal.value) == f"x={value} {rule}"


@given(st.integers() | st.floats(allow_nan=False))
def test_numbers_survive_being_written(number):
    assert convert("x", type(number), str(number)) == number
