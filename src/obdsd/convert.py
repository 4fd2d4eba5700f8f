"""Values that people write, brought to the type that is wanted: for the command line, YAML files, and the settings of parts alike."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from obdsd.errors import InputError

_SWITCH = {"true": True, "yes": True, "false": False, "no": False}


def convert(name: str, kind: Any, value: Any) -> Any:
    """`value`, which may be a text, as `kind`; one clear line if it is none.

    >>> convert("epochs", int, "12"), convert("lr", float | None, "none"), convert("ks", tuple[int, ...], "1,2,4")
    (12, None, (1, 2, 4))
    """
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        kinds = [each for each in typing.get_args(kind) if each is not type(None)]
        if value is None or (value == "none" and str not in kinds):
            return None
        return convert(name, kinds[0], value) if len(kinds) == 1 else value
    if origin is Literal:
        return _choice(name, [*typing.get_args(kind)], value)
    if origin in (list, tuple, typing.get_origin(typing.Sequence[int])):
        inner = typing.get_args(kind)[0]
        words = [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value
        made = [convert(name, inner, word) for word in (words if isinstance(words, (list, tuple)) else [words])]
        return made if origin is list else tuple(made)
    if kind is bool:
        if (word := str(value).lower()) in _SWITCH:
            return _SWITCH[word]
        raise InputError(f"{name}={value} must be true or false")
    if kind is int or kind is float:
        return _number(name, kind, value)
    if kind is str:
        if isinstance(value, (str, int, float, Path)) and not isinstance(value, bool):
            return str(value)
        raise InputError(f"{name}={value} must be a text")
    return value


def fits(value: Any, kind: Any) -> bool:
    """Whether a value that was read from a file is of a type, as records are annotated with.

    >>> fits({"recall@1": 0.5, "nmi": None}, Mapping[str, float | None]), fits({"recall@1": "0.5"}, Mapping[str, float | None])
    (True, False)
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(isinstance(name, str) and fits(each, inner[1]) for name, each in value.items())
    if origin is Sequence:
        return isinstance(value, list) and all(fits(each, inner[0]) for each in value)
    return isinstance(value, (int, float) if kind is float else kind) and (kind is bool or not isinstance(value, bool))


def _number(name: str, kind: type, value: Any) -> Any:
    try:
        if isinstance(value, bool):
            raise ValueError
        number = kind(value)
        if not isinstance(value, str) and number != value and kind is int:  # int() drops decimals
            raise ValueError
        return number
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name}={value} must be a {'whole ' if kind is int else ''}number{_of_percent(value)}") from None


def _of_percent(value: Any) -> str:
    """What to write for 5%."""
    try:
        return f"; write {float(value[:-1]) / 100:g}" if isinstance(value, str) and value.endswith("%") else ""
    except ValueError:
        return ""


def _choice(name: str, choices: list[Any], value: Any) -> Any:
    for choice in choices:
        if value == choice or str(value) == str(choice):
            return choice
    close = difflib.get_close_matches(str(value), [str(choice) for choice in choices], n=1)
    remedy = f"; did you mean {close[0]}?" if close else ""
    raise InputError(f"{name}={value} must be one of {', '.join(map(str, choices))}{remedy}")
