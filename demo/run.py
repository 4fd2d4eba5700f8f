"""The demo: untrained features, a plain loss, the same tuned, and self-distillation, with and without re-ranking. `make demo` runs it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
import yaml

from obdsd import cli
from obdsd.data.embeddings import read_vectors
from obdsd.evaluation import Points
from obdsd.evaluation.retrieval import neighbours
from obdsd.experiments.comparison import read_comparison
from obdsd.experiments.tables import aligned
from obdsd.models import Embedder
from obdsd.search.scoring import scores_of

FOLDER = Path(__file__).parent / "out"
ROWS = Path(__file__).parent / "rows.yaml"
PLAIN, TUNED, TAUGHT = yaml.safe_load(ROWS.read_text())
SIZE = 64
RERANK = "diffusion"


def main() -> None:
    data = features()
    print(
        f"2. {PLAIN}, {TUNED} and {TAUGHT} heads, three seeds each, for letters of scripts that they never saw",
        flush=True,
    )
    runs = str(FOLDER / "runs")
    if cli.main(["compare", data, "--rows", str(ROWS), "--rerank", RERANK, "--seeds", "3", "--jobs", "2", "--out", runs, "--no-report"]):
        raise SystemExit("the comparison stopped; make demo goes on from there")
    print("\n3. what each brings, in percent, with and without re-ranking (which uses all test letters together, and no labels)\n")
    print(aligned(headline(data)))
    print(f"\n4. retrieval with the {TUNED} head: letters, and the five nearest of the other 4,479 (right ones marked ✓)")
    retrieve(data, FOLDER / "runs" / TUNED / "seed-0" / "model")
    print("\n5. all of it to look at, in a browser: one page, which needs no network", flush=True)
    if cli.main(["report", runs, "--pictures", "glyphs", "--out", str(FOLDER / "report.html")]):
        raise SystemExit("the report could not be written; make demo tries again")


def features() -> str:
    """The path of an embeddings file: letters through a network that was trained on photographs and came with pip."""
    file = FOLDER / "features.npz"
    if not file.exists():
        print(f"1. features of 7,840 letters by tf_efficientnet_lite0 at {SIZE} px (a minute or so)", flush=True)
        Embedder("tf_efficientnet_lite0", pretrained="offline", head="none", size=SIZE, pooling="gem").save(FOLDER / "backbone")
        if cli.main(["embed", str(FOLDER / "backbone"), "glyphs", "--out", str(file), "--batch-size", "64"]):
            raise SystemExit("the features could not be computed")
    return os.path.relpath(file)


def headline(data: str) -> list[list[str]]:
    """A row for the untrained features and for each trained head: Recall@1 and MAP@R by the cosine, and the same re-ranked."""
    _, comparison = read_comparison(FOLDER / "runs")
    found = read_vectors(Path(data))
    assert found.splits is not None
    test = Points(found.matrix[found.splits == "test"], found.labels[found.splits == "test"])
    rows = {"untrained features": [scores_of(how, test).values for how in ("none", RERANK)]}
    for line in comparison.lines:
        assert line.reranked is not None
        rows[line.name] = [{name: mean.mean for name, mean in line.means.items()}, line.reranked[RERANK]]
    scores = {"Recall@1": "recall@1", "MAP@R": "map@r"}
    titles = [f"{title}{again}" for again in ("", ", re-ranked") for title in scores]
    shown = {name: [f"{100 * (own[score] or 0):.1f}" for own in both for score in scores.values()] for name, both in rows.items()}
    return [["", *titles], *([name, *cells] for name, cells in shown.items())]


def retrieve(data: str, model: Path) -> None:
    """Embed the test letters with a trained head and print the neighbours of a few, before and after."""
    found = read_vectors(Path(data))
    assert found.splits is not None
    assert found.names is not None
    test = found.splits == "test"
    before = found.matrix[test] / np.linalg.norm(found.matrix[test], axis=1, keepdims=True)
    after = Embedder.load(model)(torch.from_numpy(found.matrix[test])).detach().numpy()
    names, labels = found.names[test], found.labels[test]
    nearest = {"features": neighbours(before, 5), "trained": neighbours(after, 5)}
    for query in range(0, len(names), len(names) // 6):
        shown = [
            f"{when}: " + "  ".join(f"{letter(names[i])}{'✓' if labels[i] == labels[query] else '·'}" for i in near[query])
            for when, near in nearest.items()
        ]
        print(f"   {letter(names[query])} →  {'     '.join(shown)}")
    print(f"   model: {model}    in Python: obdsd.models.Embedder.load({str(model)!r})")


def letter(name: str) -> str:
    """`U+0414/…` → Д."""
    return chr(int(name.split("/")[0][2:], 16))


if __name__ == "__main__":
    main()
