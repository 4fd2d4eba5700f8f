"""What columns and parts are called by those who make tables and folders: one list of names for each meaning."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from obdsd.errors import InputError

MEANINGS = {
    "path": (
        "path", "paths", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path", "image_file", "image_name", "img",
        "img_path",
    ),
    "label": ("label", "labels", "class", "class_name", "classname", "category", "target", "targets", "species"),
    "split": ("split", "subset", "set", "partition"),
    "group": ("group",),
    "names": ("names", "path", "paths", "file", "filename", "filenames", "file_name", "filepath", "file_path", "image_path"),
    "embeddings": ("embeddings", "embedding", "features", "vectors", "vector", "x"),
}  # fmt: skip
PARTS = {"training": "train", "validation": "val", "valid": "val", "testing": "test"}


def plain(name: str) -> str:
    """A column's name in the form of the lists.

    >>> plain(" Image Path")
    'image_path'
    """
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def part_meant(name: str) -> str:
    """The part that a word stands for; a word that stands for none stays.

    >>> part_meant("Valid"), part_meant("train"), part_meant("trian")
    ('val', 'train', 'trian')
    """
    word = plain(name)
    return PARTS.get(word, word if word in ("train", "val", "test", "query", "gallery") else name)


def column_for(table: Path, names: Sequence[str], meaning: str, *others: str) -> str | None:
    """Of the names in a table the one that has the meaning, by the lists or by `others`; two that could have it are refused."""
    accepted = (*MEANINGS.get(meaning, (meaning,)), *others)
    found = list(dict.fromkeys(name for name in names if plain(name) in accepted))
    if len(found) > 1:
        shown = ", ".join(map(repr, found))
        raise InputError(f"{table}: has {len(found)} columns that could be the {meaning} ({shown}); rename or remove all but one")
    return found[0] if found else None


def missing(names: Sequence[str], meaning: str, *others: str) -> str:
    """That a table has no column of this meaning: what was wanted, what it has, and what was perhaps meant."""
    accepted = (*MEANINGS[meaning], *others)
    like = {plain(name): name for name in names}
    near = [like[close] for wanted in accepted for close in difflib.get_close_matches(wanted, like, n=1, cutoff=0.7)]
    remedy = f"rename {near[0]!r} to {accepted[0]}" if near else f"rename the one that is meant to {accepted[0]}"
    return f"has no column {' or '.join((', '.join(accepted[:-1]), accepted[-1]))}; it has {_quoted(names)}; {remedy}"


def _quoted(names: Sequence[str], most: int = 12) -> str:
    return (", ".join(map(repr, names[:most])) + (", …" if len(names) > most else "")) or "none"
