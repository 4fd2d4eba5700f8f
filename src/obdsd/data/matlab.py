"""MATLAB's files of version 5, as far as the devkit of CARS196 needs them: in Python alone, as a damaged one may end scipy's process."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LARGEST = 2**26  # bytes of a variable, unpacked; those of the devkit have less than 2**24
MATRIX, COMPRESSED = 14, 15  # kinds of elements
NUMBERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16"}
CELL, STRUCT, CHARACTERS, FIRST_NUMBERS, LAST_NUMBERS = 1, 2, 4, 6, 15  # classes of matrices


def read_mat(path: Path) -> dict[str, Any]:
    """The variables by name: a list of values for a cell, of dictionaries for a struct, of numbers for a matrix; characters as a text."""
    content = path.read_bytes()
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise ValueError("no MATLAB file of version 5 to 7")
    variables = {}
    for kind, payload in _elements(content[128:], order):
        if kind == COMPRESSED:
            unpacked = zlib.decompressobj().decompress(payload, LARGEST)
            kind, payload = next(_elements(unpacked, order))
        if kind == MATRIX:
            name, value = _matrix(payload, order)
            variables[name] = value
    return variables


def _elements(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Kind and bytes of each; small ones have both in one word, and all but the compressed ones end on a multiple of 8."""
    at = 0
    while at < len(content):
        kind, size = struct.unpack_from(f"{order}II", content, at)
        start, end = at + 8, at + 8 + size
        if kind >> 16:
            kind, start, end = kind & 0xFFFF, at + 4, at + 4 + (kind >> 16)
        if end > len(content):
            raise ValueError("it is cut off")
        yield kind, content[start:end]
        at = end if kind == COMPRESSED else end + -end % 8


def _matrix(content: bytes, order: str) -> tuple[str, Any]:
    """Name and value of a matrix."""
    if not content:
        return "", []
    elements = _elements(content, order)

    def numbers() -> tuple[Any, ...]:
        kind, payload = next(elements)
        code = NUMBERS[kind]
        return struct.unpack(f"{order}{len(payload) // struct.calcsize(code)}{code}", payload)

    matrix_class, count, name = numbers()[0] & 0xFF, math.prod(numbers()), next(elements)[1].decode()
    if count > len(content):
        raise ValueError("it claims more than it holds")
    return name, _content(matrix_class, count, elements, numbers, order)


def _content(matrix_class: int, count: int, elements: Iterator[Any], numbers: Callable[[], tuple[Any, ...]], order: str) -> Any:
    if matrix_class == CELL:
        return [_matrix(next(elements)[1], order)[1] for _ in range(count)]
    if matrix_class == STRUCT:
        (length,), names = numbers(), next(elements)[1]
        fields = [names[at : at + length].rstrip(b"\0").decode() for at in range(0, len(names), length)]
        return [{field: _matrix(next(elements)[1], order)[1] for field in fields} for _ in range(count)]
    if matrix_class == CHARACTERS:
        kind, payload = next(elements)
        encoding = TEXTS[kind]
        return payload.decode(f"{encoding}-{'le' if order == '<' else 'be'}" if encoding == "utf-16" else encoding)
    return list(numbers()) if FIRST_NUMBERS <= matrix_class <= LAST_NUMBERS else None
