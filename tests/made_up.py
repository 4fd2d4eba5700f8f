"""Small data that several rooms are tested on."""

from pathlib import Path

import numpy as np

from obdsd.data.items import Rows
from obdsd.data.part import Part


def write_rows(path: Path, classes: int, each: int, dim: int) -> str:
    """An embeddings file of seeded rows around class centres, near enough for mistakes; half of the classes test."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    rows = generator.standard_normal((classes, dim))[labels] + 1.5 * generator.standard_normal((len(labels), dim))
    np.savez(path, embeddings=rows.astype(np.float32), labels=labels)
    return str(path)


def of_classes(classes: int) -> Part:
    """One item of each of so many classes, for what asks how many there are."""
    numbers = np.arange(classes)
    return Part(Rows(np.eye(classes, dtype=np.float32)), numbers, numbers, tuple(map(str, numbers)))
