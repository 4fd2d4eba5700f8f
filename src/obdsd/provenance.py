"""What a model was trained on, in a form that travels with it: short digests, by which it knows again what it has seen."""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from obdsd.errors import InputError


def short_digest(content: bytes) -> str:
    """8 bytes in hex: among a million different contents, two are alike with a chance of less than 1 in 30 million."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def read_made_by(record: Any) -> dict[str, str | int] | None:
    """How the model saw images that made rows of embeddings: backbone, pooling, size, resize; None where nobody knows."""
    known = isinstance(record, Mapping) and all(isinstance(name, str) and isinstance(value, (str, int)) for name, value in record.items())
    if record is not None and not known:
        raise InputError(f"made_by={reprlib.repr(record)} must hold texts and whole numbers; save the model again")
    return None if record is None else dict(record)


@dataclass(frozen=True, kw_only=True)
class TrainedOn:
    """The data of a training and how they were split.

    `parts` holds the fingerprint of each part. `classes` and `items` hold the digests of class names and contents, with blanks between
    them, of the parts `train` and `val`: held-out classes train nothing, but may choose the epoch.
    """

    data: str
    split_seed: int
    test_fraction: float
    parts: Mapping[str, str]
    classes: Mapping[str, str]
    items: Mapping[str, str]

    def __post_init__(self) -> None:
        numbers = isinstance(self.test_fraction, float) and isinstance(self.split_seed, int) and self.split_seed >= 0
        maps = (self.parts, self.classes, self.items)
        texts = all(isinstance(each, Mapping) and all(isinstance(text, str) for text in (*each, *each.values())) for each in maps)
        if not (numbers and texts and isinstance(self.data, str)):
            raise InputError(f"trained_on={reprlib.repr(vars(self))} must hold a split and digests; save the model again")

    def after(self, before: TrainedOn) -> TrainedOn:
        """The same training of a model that had been trained before: it has seen what both have seen."""

        def both(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
            return {name: " ".join(dict.fromkeys(f"{one.get(name, '')} {other.get(name, '')}".split())) for name in {**one, **other}}

        return replace(self, classes=both(self.classes, before.classes), items=both(self.items, before.items))

    @classmethod
    def read(cls, record: Any) -> TrainedOn | None:
        """What model.json holds, null for a model that nobody trained here."""
        names = [field.name for field in fields(cls)]
        if record is not None and (not isinstance(record, dict) or sorted(record) != sorted(names)):
            raise InputError(f"trained_on={reprlib.repr(record)} must hold {', '.join(names)}; save the model again")
        return None if record is None else cls(**record)
