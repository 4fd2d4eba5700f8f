"""The demo: does the previous epoch teach anything? Three seeds of each row, the table, and one retrieval. `make demo` runs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from features import FOLDER, features

from obdsd import cli
from obdsd.data.vectors import read_vectors
from obdsd.evaluation.retrieval import neighbours
from obdsd.models import Embedder

ROWS = Path(__file__).parent / "rows.yaml"
SHOWN = "obd-sd"


def main() -> None:
    data = features()
    print("2. four rows × three seeds: a linear head for letters of scripts that it never saw", flush=True)
    comparison = ["compare", data, "--rows", str(ROWS), "--seeds", "3", "--jobs", "2", "--out", str(FOLDER / "runs")]
    if cli.main(comparison):
        raise SystemExit("the comparison stopped; make demo goes on from there")
    print("\n3. one retrieval with the trained model: a letter, and the five nearest of the other 4,479")
    retrieve(data, FOLDER / "runs" / SHOWN / "seed-0" / "model")


def retrieve(data: str, model: Path) -> None:
    """Embed the test letters with a trained head and print one's neighbours, before and after."""
    found = read_vectors(Path(data))
    assert found.splits is not None
    assert found.names is not None
    test = found.splits == "test"
    before = found.matrix[test] / np.linalg.norm(found.matrix[test], axis=1, keepdims=True)
    after = embed(model, found.matrix[test])
    query = 2000
    for when, rows in (("by the features", before), ("by the head    ", after)):
        nearest = neighbours(rows, 5)[query]
        shown = "  ".join(f"{letter(found.names[test][i])}{'✓' if found.labels[test][i] == found.labels[test][query] else '✗'}" for i in nearest)
        print(f"   {letter(found.names[test][query])} → {when}: {shown}")
    print(f"   model: {model}    in Python: obdsd.models.Embedder.load({str(model)!r})")


def embed(model: Path, rows: np.ndarray) -> np.ndarray:
    import torch

    with torch.no_grad():
        return Embedder.load(model)(torch.from_numpy(rows)).numpy()


def letter(name: str) -> str:
    """`U+0414/…` → Д."""
    return chr(int(name.split("/")[0][2:], 16))


if __name__ == "__main__":
    main()
