"""Teachers of another kind, as files: a table of embeddings, and a model that sees larger images."""

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from obdsd.models import Embedder

TABLE, LARGER = "embeddings({teachers}/table.parquet)", "frozen({teachers}/larger)"  # {teachers} is the folder
ALONE = {"loss": "none", "supervision": "none"}


def write_teachers(folder: Path, features: str) -> str:
    """`table.parquet`: of every row of the features but each fifth, in another order, one of length 9 that is not of unit length.
    `larger`: a model for images of 48 pixels, whose rows have a length of their own."""
    with np.load(features) as file:
        rows = file["embeddings"]
    generator = np.random.default_rng(5)
    kept = generator.permutation([row for row in range(len(rows)) if row % 5])
    table = np.tanh(rows[kept] @ generator.standard_normal((rows.shape[1], 9))) * generator.uniform(0.1, 30, (len(kept), 1))
    columns = {"path": [f"row {row}" for row in kept], "embedding": list(table)}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "table.parquet")
    Embedder("tiny-conv", dim=7, size=48, seed=5).save(folder / "larger")
    return str(folder)


def at(teachers: str, changes: dict) -> dict:
    """Settings of a training, with the folder of its teacher filled in."""
    return {name: value.format(teachers=teachers) if name == "teacher" else value for name, value in changes.items()}
