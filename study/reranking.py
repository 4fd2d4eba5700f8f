"""What re-ranking is worth: each kind with settings chosen on held-out training classes, then scored on the test classes."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from obdsd import cli
from obdsd.data import Collection, Part, open_data
from obdsd.evaluation import Points, Scores, evaluate
from obdsd.evaluation.embedding import embed
from obdsd.files import write_json
from obdsd.method.graph import neighbour_graph, normalised, solve_walk
from obdsd.method.local_walks import local_walks
from obdsd.models import Embedder
from obdsd.search.diffusion import Diffusion, most_visited
from obdsd.search.flat import nearest_others
from obdsd.search.reranker import unit_rows
from obdsd.search.scoring import GRID, choose, scores_of
from obdsd.spec import Spec
from study.plan import CUB, CUB_224, CUB_GEM, LETTERS, LETTERS_GEM
from study.records import RESULTS, SCRATCH
from study.search import features

COLLECTIONS = {
    "CUB, frozen, 128 px": CUB,
    "CUB, frozen, 224 px": CUB_224,
    "CUB, frozen, gem, 224 px": CUB_GEM,
    "CUB, trained head, 128 px": CUB,
    "letters, frozen, 64 px": LETTERS,
    "letters, frozen, gem, 64 px": LETTERS_GEM,
    "letters, trained head, 64 px": LETTERS,
}
ASKED = 300  # items whose exact walks are computed
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


def write_reach() -> None:
    """Compare walks within few items with the exact walk, on CUB's training classes: what of the first 10 and 60 items they share."""
    part = open_data(features(CUB))["train"]
    rows, how = unit_rows(part.matrix()), Diffusion()
    near = nearest_others(rows, how.neighbours, lambda count: None)
    S = normalised(neighbour_graph(torch.from_numpy(near.scores), torch.from_numpy(near.positions), how.power, how.graph))
    asked = torch.from_numpy(np.random.default_rng(0).choice(len(rows), ASKED, replace=False))
    start = torch.zeros(len(rows), ASKED)
    start[asked, torch.arange(ASKED)] = 1
    exact = solve_walk(S, start, how.omega).T
    exact[torch.arange(ASKED), asked] = -1
    want = exact.topk(60).indices.numpy()
    cosines = torch.from_numpy(rows[asked.numpy()] @ rows.T)
    cosines[torch.arange(ASKED), asked] = 2
    found = {"exact": {"map@r": _map_at_r(part.labels, asked.numpy(), want)}}
    for reach in (100, 200, 300, 500):
        visited = np.concatenate(list(most_visited(S, how.omega, reach)))[asked.numpy()]
        for name, within in (("most visited", torch.from_numpy(visited)), ("nearest", cosines.topk(reach).indices)):
            walks = local_walks(S, within, how.omega)
            walks[:, 0] = -1
            got = within.gather(1, walks.topk(60).indices).numpy()
            shares = {str(k): float(np.mean([len({*a[:k]} & {*b[:k]}) / k for a, b in zip(got, want, strict=True)])) for k in (10, 60)}
            found[f"{reach} {name}"] = {**shares, "map@r": _map_at_r(part.labels, asked.numpy(), got)}
    write_json(RESULTS / "reach.json", {name: {key: round(value, 4) for key, value in own.items()} for name, own in found.items()})


def write_other_ways() -> None:
    """Try walks on other graphs, on half of CUB's training classes: with the other half in the graph, and with images seen at two sizes."""
    small, large = (open_data(features(file)).hold_out(fraction=0.5) for file in (CUB, CUB_224))
    labels, how = small["val"].labels, Diffusion()
    (Z, L), others = (unit_rows(each["val"].matrix()) for each in (small, large)), unit_rows(small["train"].matrix())
    both = np.concatenate([Z, L], axis=1) / np.sqrt(2)
    walks = {name: how.fit(rows).walks.toarray() for name, rows in (("128 px", Z), ("224 px", L), ("both", both))}
    with_others = how.fit(np.concatenate([Z, others])).walks[: len(Z), : len(Z)].toarray()
    tables = {
        "cosine, 128 px": Z @ Z.T,
        "diffusion, 128 px": _after(walks["128 px"], Z),
        "diffusion, 128 px, the other training classes in the graph": _after(with_others, Z),
        "cosine, 224 px": L @ L.T,
        "diffusion, 224 px": _after(walks["224 px"], L),
        "cosine, both sizes side by side": both @ both.T,
        "diffusion, both sizes side by side": _after(walks["both"], both),
        "sum of the walks on the graphs of both sizes": _after(walks["128 px"] + walks["224 px"], both),
    }
    found = {}
    for name, table in tables.items():
        np.fill_diagonal(table, -np.inf)
        order = np.argsort(-table, axis=1, kind="stable")
        found[name] = _kept(evaluate(Z, labels, search=lambda queries, k, own, order=order: (order[own, :k], order[own, :k])))
    write_json(RESULTS / "other-ways.json", found)


def _after(walks: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Walks, and below them the cosines of what is not visited."""
    return np.where(walks > 0, walks, rows @ rows.T - 2)


def _map_at_r(labels: NDArray[np.int64], asked: NDArray[np.int64], positions: NDArray[np.int64]) -> float:
    hit, ranks = labels[positions] == labels[asked][:, None], np.arange(1, positions.shape[1] + 1)
    relevant = np.bincount(labels)[labels[asked]] - 1
    within = hit & (ranks <= relevant[:, None])
    return float(((hit.cumsum(axis=1) / ranks * within).sum(axis=1) / relevant).mean())


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
    return f"{read.name}({Spec.parse(read.positional[0]).name})" if read.positional else read.name


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
