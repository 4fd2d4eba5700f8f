"""Text files that list images: a line for each, columns with spaces between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from obdsd.errors import InputError


def read_list(path: Path, header: str, skip: int = 0) -> Iterator[list[str]]:
    """The lines of a list after `skip` of them, each with the columns of the header."""
    columns = len(header.split())
    try:
        lines = path.read_bytes().decode().split("\n")
    except UnicodeDecodeError as damage:
        raise InputError(f"{path}: is not UTF-8 at byte {damage.start}; save the list as UTF-8") from None
    for number, line in enumerate(lines[skip:], start=skip + 1):
        fields = line.split()
        if fields and len(fields) != columns:
            raise InputError(f"{path}: line {number} must have {columns} columns ({header}), not {len(fields)}; mend or replace the list")
        if any(field.startswith("/") or ".." in field.split("/") for field in fields):
            raise InputError(f"{path}: line {number} names a file outside of the folder, {line.strip()!r}; mend or replace the list")
        if fields:
            yield fields
