"""How many wrong labels does `obdsd data suspects` find? Labels are made wrong on purpose; beside it stand votes, a walk, and cleanlab."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from obdsd import cli
from obdsd.data import Part, open_data
from obdsd.data.noise import flip_labels
from obdsd.errors import InputError
from obdsd.evaluation.retrieval import neighbours
from obdsd.files import read_mapping, write_json
from obdsd.method.graph import mutual_neighbours, normalised, solve_walk
from obdsd.search.suspects import Judged, judge, whitened
from study.plan import LETTERS
from study.reading import Rows as TableRows
from study.records import RESULTS, SCRATCH

CUB = "cub224.npz"
FILE = RESULTS / "suspects.json"
RATES, SEEDS, FOLDS = (0.05, 0.1, 0.2), 3, 5
SHRINKAGES = (1.0, 3.0, 10.0, 30.0)
STRENGTHS = (0.001, 0.01, 0.1, 1.0)  # C of the logistic regression, of which the best on training classes is taken
Rows, Numbers = NDArray[np.float32], NDArray[np.int64]


class Found(NamedTuple):
    """A score for each label, the higher the more suspect, and the labels that a way would list by itself."""

    score: NDArray[Any]
    listed: NDArray[np.bool_]


def run_suspects(cub: str) -> None:
    """Make labels wrong on purpose and count how many of them are found, beside cleanlab (pip install cleanlab)."""
    files = {"cub": (CUB, f"cub200:{cub}", "224"), "letters": (LETTERS, "glyphs", "64")}
    found: dict[str, Any] = {}
    for data, (file, source, size) in files.items():
        path = SCRATCH / file
        if not path.exists() and cli.main(["embed", "tf_efficientnet_lite0:offline", source, "--size", size, "--out", str(path)]):
            raise SystemExit("the features could not be computed")
        collection = open_data(str(path))
        train, test = (_unit(collection[name]) for name in ("train", "test"))
        trials: dict[str, Callable[[Rows, Numbers], Found]] = {f"shrinkage {s:g}": _class_means(s) for s in SHRINKAGES}
        found[f"{data}, training classes"] = measured(*train, {**WAYS, **trials})
        strength = _best_strength(*train)
        ways = {**WAYS, "cleanlab, logistic regression": _cleanlab(_logistic(strength)), "cleanlab, 50 neighbours": _cleanlab(_nearby)}
        found[f"{data}, test classes"] = {"C": strength, **measured(*test, ways)}
    write_json(FILE, found)


def measured(rows: Rows, labels: Numbers, ways: Mapping[str, Callable[[Rows, Numbers], Found]]) -> dict[str, Any]:
    """Of each way and rate, means over seeds: precision among the worst n, n the number made wrong; and those of its own list."""
    results: dict[str, Any] = {}
    for name, way in ways.items():
        for rate in (0.0, *RATES):
            seeds = [_counts(way(rows, noisy := flip_labels(labels, rate, seed)), noisy != labels) for seed in range(SEEDS if rate else 1)]
            results.setdefault(name, {})[f"{rate:g}"] = [round(float(mean), 4) for mean in np.mean(seeds, axis=0)]
            print(name, rate, results[name][f"{rate:g}"], flush=True)
    return results


def _counts(found: Found, wrong: NDArray[np.bool_]) -> tuple[float, float, float, float]:
    """Precision of the worst n, the share that is listed, precision and recall of the list."""
    worst = np.argsort(-found.score, kind="stable")[: wrong.sum()]
    at_n = float(wrong[worst].mean()) if len(worst) else 0.0
    hits = int((wrong & found.listed).sum())
    return at_n, float(found.listed.mean()), hits / max(1, int(found.listed.sum())), hits / max(1, int(wrong.sum()))


def _class_means(shrinkage: float) -> Callable[[Rows, Numbers], Found]:
    """The way of the product, with any shrinkage."""

    def way(rows: Rows, labels: Numbers) -> Found:
        return _cut(judge(whitened(rows, shrinkage), labels))

    return way


def _cut(judged: Judged) -> Found:
    listed = np.zeros(len(judged.score), dtype=bool)
    listed[np.argsort(-judged.score, kind="stable")[: round(judged.wrong_share * len(listed))]] = True
    return Found(judged.score, listed)


def _plain_means(rows: Rows, labels: Numbers) -> Found:
    return _cut(judge(rows, labels))


def _vote(rows: Rows, labels: Numbers) -> Found:
    """Votes of the 50 nearest items, weighted by their cosine to the power 5."""
    near = neighbours(rows, 50)
    weights = np.einsum("id,ikd->ik", rows, rows[near]).clip(0) ** 5
    votes = np.zeros((len(rows), labels.max() + 1))
    np.add.at(votes, (np.arange(len(rows))[:, None], labels[near]), weights)
    return _behind(votes, labels)


def _walk(rows: Rows, labels: Numbers) -> Found:
    """Labels walk on the graph of mutual 50 nearest items (ω = 0.9); those of a fifth of the items are hidden and judged, in turns."""
    S = normalised(mutual_neighbours(torch.from_numpy(rows), 50, power=5.0))
    folds = np.random.default_rng(0).permutation(len(rows)) % FOLDS
    walked = np.zeros((len(rows), labels.max() + 1))
    for fold in range(FOLDS):
        start = torch.nn.functional.one_hot(torch.from_numpy(labels)).float() * torch.from_numpy(folds != fold)[:, None]
        walked[folds == fold] = solve_walk(S, start, omega=0.9, tolerance=1e-4).numpy()[folds == fold]
    return _behind(walked / np.maximum(walked.sum(axis=1, keepdims=True), 1e-12), labels)


def _behind(votes: NDArray[Any], labels: Numbers) -> Found:
    """By how much a label is behind the best other one; what is behind is listed."""
    place = np.arange(len(labels))
    own = votes[place, labels]
    others = votes.copy()
    others[place, labels] = -np.inf
    score = others.max(axis=1) - own
    return Found(score, score > 0)


WAYS: dict[str, Callable[[Rows, Numbers], Found]] = {
    "whitened class means": _class_means(10.0),
    "plain class means": _plain_means,
    "vote of 50 neighbours": _vote,
    "walk of labels": _walk,
}


def _logistic(strength: float) -> Callable[[], Any]:
    return lambda: LogisticRegression(C=strength, max_iter=200)


def _nearby() -> Any:
    return KNeighborsClassifier(50, metric="cosine", weights="distance")


def _probabilities(model: Any, rows: Rows, labels: Numbers) -> NDArray[Any]:
    """Out-of-sample probabilities by cross-validation, as cleanlab's documentation advises."""
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0).mean()
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    return np.asarray(cross_val_predict(model, scaled, labels, cv=folds, method="predict_proba"))


def _cleanlab(make: Callable[[], Any]) -> Callable[[Rows, Numbers], Found]:
    def way(rows: Rows, labels: Numbers) -> Found:
        try:
            from cleanlab.filter import find_label_issues
            from cleanlab.rank import get_label_quality_scores
        except ImportError as missing:
            raise InputError("cleanlab is not installed; pip install cleanlab installs it") from missing
        likely = _probabilities(make(), rows, labels)
        return Found(-get_label_quality_scores(labels, likely), find_label_issues(labels, likely, n_jobs=1))

    return way


def _best_strength(rows: Rows, labels: Numbers) -> float:
    """C by the accuracy of cross-validation on training classes with a tenth of the labels wrong."""
    noisy = flip_labels(labels, 0.1, SEEDS)
    hits = {C: (_probabilities(_logistic(C)(), rows, noisy).argmax(axis=1) == noisy).mean() for C in STRENGTHS}
    return max(hits, key=lambda C: hits[C])


def _unit(part: Part) -> tuple[Rows, Numbers]:
    rows = part.matrix()
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), part.labels


def suspects_table(data: str) -> TableRows:
    """A row for each way, in percent: precision among the worst n; precision and recall of its own list; what it lists of clean data."""
    yield ["", *(f"{rate:.0%} wrong: at n" for rate in RATES), *(f"{rate:.0%}: its own list" for rate in RATES), "clean: listed"]
    for way, rates in read_mapping(FILE)[data.replace("-", ", ", 1).replace("-", " ")].items():
        if isinstance(rates, dict):
            own = [rates[f"{rate:g}"] for rate in RATES]
            lists = [f"{100 * precision:.0f} / {100 * recall:.0f}" for _, _, precision, recall in own]
            yield [way, *(f"{100 * at_n:.1f}" for at_n, *_ in own), *lists, f"{100 * rates['0'][1]:.1f}"]
