"""What a Parquet file says of its columns, read without pyarrow, whose own answer ends the process where a file is damaged."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

STRUCT, LIST, SET, MAP, BINARY, DOUBLE, BYTE = 12, 9, 10, 11, 8, 7, 3  # kinds of Thrift's compact protocol


class Chunk(NamedTuple):
    """A column of a row group: how many values it has, and their bytes as they are stored but for compression."""

    values: int
    size: int


def row_groups(path: Path) -> list[list[Chunk]]:
    """The columns of each row group of a file; pyarrow may open one whose footer is damaged all the same."""
    try:
        with path.open("rb") as file:
            file.seek(-8, io.SEEK_END)
            file.seek(-8 - int.from_bytes(file.read(4), "little"), io.SEEK_END)
            footer = _value(file, STRUCT)
        columns = [[chunk.get(3, {}) for chunk in group[1]] for group in footer[4]]
        return [[Chunk(abs(column.get(5, 0)), abs(column.get(6, 0))) for column in group] for group in columns]
    except (AttributeError, LookupError, TypeError, OverflowError, RecursionError):  # it ends early, or has a number where fields should be
        raise OSError("its footer is damaged") from None


def _value(file: io.BufferedReader, kind: int) -> Any:
    """A struct as its fields by their numbers, a list, bytes or a number."""
    if kind == STRUCT:
        fields, number = {}, 0
        while head := _byte(file):
            number = number + (head >> 4) if head >> 4 else _signed(file)
            fields[number] = head & 15 if head & 15 <= 2 else _value(file, head & 15)  # a truth is its own kind
        return fields
    if kind in (LIST, SET):
        head = _byte(file)
        return [_value(file, head & 15) for _ in range(head >> 4 if head >> 4 < 15 else _number(file))]
    if kind == BINARY:
        return file.read(_number(file))
    if kind == DOUBLE:
        return file.read(8)
    return _byte(file) if kind <= BYTE else _signed(file)


def _byte(file: io.BufferedReader) -> int:
    return file.read(1)[0]


def _number(file: io.BufferedReader) -> int:
    number = shift = 0
    while (byte := _byte(file)) & 128:
        number, shift = number | (byte & 127) << shift, shift + 7
    return number | byte << shift


def _signed(file: io.BufferedReader) -> int:
    number = _number(file)
    return number >> 1 ^ -(number & 1)
