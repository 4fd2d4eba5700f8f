"""What re-ranking is worth: each kind with settings chosen on held-out training classes, then scored on the test classes."""

from __future__ import annotations

import shutil
from typing import Any

from obdsd import cli
from obdsd.data import Collection, Part, open_data
from obdsd.evaluation import Points, Scores
from obdsd.evaluation.embedding import embed
from obdsd.files import write_json
from obdsd.models import Embedder
from obdsd.search.scoring import GRID, choose, scores_of
from obdsd.spec import Spec
from study.plan import CUB, CUB_224, LETTERS
from study.records import RESULTS, SCRATCH
from study.search import features

COLLECTIONS = {
    "CUB, frozen, 128 px": CUB,
    "CUB, frozen, 224 px": CUB_224,
    "CUB, trained head, 128 px": CUB,
    "letters, frozen, 64 px": LETTERS,
    "letters, trained head, 64 px": LETTERS,
}
HELD_OUT = 0.3  # of the training classes, for a head that the others train
KINDS = ("none", "diffusion", "alpha-qe", "k-reciprocal", "alpha-qe(diffusion)")
KEPT = ("recall@1", "recall@2", "recall@4", "recall@8", "r-precision", "map@r")
FILE = RESULTS / "reranking.json"


def write_reranking() -> None:
    """Choose the settings of each re-ranker on held-out classes, and score them on the test classes."""
    found = {}
    for name, file in COLLECTIONS.items():
        if "frozen" in name:  # no class has trained anything
            collection = open_data(features(file))
            found[name] = compared(points(collection["train"]), points(collection["test"]))
        else:
            found[name] = compared(*_by_a_trained_head(features(file)))
        write_json(FILE, found)
        print(f"{name}: {found[name]['test']}", flush=True)


def compared(held_out: Points, test: Points) -> dict[str, Any]:
    """For each kind of re-ranker what was tried, by MAP@R in percent, and the test scores of the best."""
    result: dict[str, Any] = {"tried": {}, "test": {}}
    for kind in KINDS:
        best, tried = choose(held_out, grid=[spec for spec in GRID if kind_of(spec) == kind])
        result["tried"] |= {spec: round(100 * (scores["map@r"] or 0), 2) for spec, scores in tried.items()}
        result["test"][kind] = {"rerank": str(best), **_kept(scores_of(best, test))}
    return result


def kind_of(spec: str) -> str:
    """`alpha-qe(diffusion)` of `alpha-qe(diffusion(omega=0.9), neighbours=2)`."""
    read = Spec.parse(spec)
    inner = [value for value in read.positional if isinstance(value, Spec)]
    return f"{read.name}({inner[0].name})" if inner else read.name


def points(part: Part) -> Points:
    return Points(part.matrix(), part.classes, part.groups)


def _by_a_trained_head(file: str) -> tuple[Points, Points]:
    """Held-out and test classes, embedded by a head that the other training classes trained, as obdsd advises."""
    folder = SCRATCH / "reranking"
    shutil.rmtree(folder, ignore_errors=True)
    if cli.main(["train", file, "--val-fraction", str(HELD_OUT), "--out", str(folder), "--no-report", "--score", "validation"]):
        raise SystemExit("the head could not be trained")
    model, collection = Embedder.load(folder / "model"), open_data(file).hold_out(fraction=HELD_OUT)
    shutil.rmtree(folder)
    return _embedded(model, collection, "val"), _embedded(model, collection, "test")


def _embedded(model: Embedder, collection: Collection, part: str) -> Points:
    return points(collection[part])._replace(embeddings=embed(model, collection[part]))


def _kept(scores: Scores) -> dict[str, float]:
    return {name: round(100 * (scores.values.get(name) or 0), 2) for name in KEPT}
