"""`--rerank`: scores with and without it side by side, by a slow count of what the re-ranker finds; auto chooses on held-out classes."""

import csv
import json

import numpy as np
import pytest

from obdsd.catalogue import RERANKERS
from obdsd.evaluation import Points, evaluate
from obdsd.experiments.comparison import Comparison, Line, compared_metrics
from obdsd.experiments.statistics import Interval
from obdsd.experiments.tables import rows_of
from obdsd.report import gather
from obdsd.search.scoring import GRID, choose

RNG = np.random.default_rng(6)
NAMES = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen")
LABELS = np.repeat(NAMES, 6)
ROWS = (np.eye(8)[np.repeat(np.arange(8), 6)] + RNG.normal(scale=0.6, size=(48, 8))).astype(np.float32)
SPEC = "diffusion(neighbours=3, power=2.0)"
MANY = ("recall@1", "map@r")


def slow_scores(fitted, queries, labels, gallery_labels, own=None, ignored=None):
    """Recall@1 and MAP@R, item by item; `ignored(query, item)` says which items do not count."""
    recalls, precisions = [], []
    found = fitted.search(queries, len(gallery_labels) - (own is not None), own).positions
    for query, positions in enumerate(found):
        kept = [int(item) for item in positions if ignored is None or not ignored(query, item)]
        hits = [gallery_labels[item] == labels[query] for item in kept]
        R = sum(hits)
        if R:
            recalls.append(hits[0])
            precisions.append(sum(hit * sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits[:R])) / R)
    return {"recall@1": np.mean(recalls), "map@r": np.mean(precisions)}


def test_both_scores_stand_side_by_side(obdsd, tmp_path):
    np.savez(tmp_path / "x.npz", x=ROWS, y=LABELS)
    code, printed, _ = obdsd("evaluate", tmp_path / "x.npz", "--rerank", SPEC, "--out", tmp_path / "s.json", "--per-class")
    assert code == 0
    written = json.loads((tmp_path / "s.json").read_text())
    want = slow_scores(RERANKERS.build(SPEC).fit(ROWS), ROWS, LABELS, LABELS, np.arange(48))
    reranked = written["reranked"]
    assert {name: reranked["scores"][name] for name in MANY} == pytest.approx(want)
    assert reranked["scores"]["map@r"] != written["scores"]["map@r"]
    assert reranked["rerank"] == SPEC
    assert "transductive" in reranked["note"]
    assert reranked["scores"]["nmi"] is None
    assert {*reranked["per_class"]} == {*NAMES}
    plain = evaluate(ROWS, LABELS)
    assert {name: written["scores"][name] for name in MANY} == {name: plain[name] for name in MANY}
    line = next(line for line in printed.splitlines() if line.startswith("MAP@R"))
    assert line.split() == ["MAP@R", f"{100 * plain['map@r']:.2f}", "%", f"{100 * want['map@r']:.2f}", "%"]
    assert next(line for line in printed.splitlines() if line.startswith("NMI")).count("%") == 1
    assert printed.splitlines()[-1].startswith(f"Re-ranked by {SPEC}. Re-ranking is transductive")


@pytest.mark.parametrize("spec", [SPEC, "k-reciprocal(neighbours=4, expansion=2)"])
def test_query_gallery_and_groups_are_obeyed(obdsd, tmp_path, spec):
    split, group = np.array(["query", "gallery", "gallery"] * 16), np.arange(48) % 4
    np.savez(tmp_path / "x.npz", x=ROWS, y=LABELS, split=split, group=group)
    code, *_ = obdsd("evaluate", tmp_path / "x.npz", "--rerank", spec, "--ks", "1", "--out", tmp_path / "s.json")
    assert code == 0
    asks, there = split == "query", split == "gallery"
    labels, others = LABELS[asks], LABELS[there]
    same = (labels[:, None] == others) & (group[asks][:, None] == group[there])
    want = slow_scores(RERANKERS.build(spec).fit(ROWS[there]), ROWS[asks], labels, others, ignored=lambda query, item: same[query, item])
    found = json.loads((tmp_path / "s.json").read_text())["reranked"]["scores"]
    assert {name: found[name] for name in MANY} == pytest.approx(want)


def test_auto_chooses_on_training_classes_and_tells_what_it_tried(obdsd, tmp_path):
    split = np.repeat(["train", "test"], 24)
    np.savez(tmp_path / "x.npz", x=ROWS, y=LABELS, split=split)
    arguments = ["--rerank", "auto", "--val-fraction", "1", "--no-clusters", "--out", tmp_path / "s.json"]
    code, printed, _ = obdsd("evaluate", tmp_path / "x.npz", *arguments)
    assert code == 0
    written = json.loads((tmp_path / "s.json").read_text())
    tried = {spec: values["map@r"] for spec, values in written["tried"].items()}
    assert len(tried) == len(GRID)
    for spec in ("none", "alpha-qe(neighbours=5)"):
        fitted = RERANKERS.build(spec).fit(ROWS[:24])
        assert tried[spec] == pytest.approx(slow_scores(fitted, ROWS[:24], LABELS[:24], LABELS[:24], np.arange(24))["map@r"])
    best = max(tried, key=tried.get)
    assert written["reranked"]["rerank"] == best
    want = slow_scores(RERANKERS.build(best).fit(ROWS[24:]), ROWS[24:], LABELS[24:], LABELS[24:], np.arange(24))
    assert written["reranked"]["scores"]["map@r"] == pytest.approx(want["map@r"])
    lines = printed.splitlines()
    assert lines[0] == "rerank=auto on 24 items of held-out training classes, by MAP@R:"
    assert next(line for line in lines if line.endswith("  <")).split("  ")[1] == best


def test_a_share_of_the_training_classes_is_held_out_as_in_a_training(obdsd, tmp_path):
    np.savez(tmp_path / "x.npz", x=ROWS, y=LABELS, split=np.repeat(["train", "test"], 24))
    _, printed, _ = obdsd("evaluate", tmp_path / "x.npz", "--rerank", "auto", "--val-fraction", "0.5", "--no-clusters")
    assert printed.startswith("rerank=auto on 12 items of held-out training classes")


def test_of_equally_good_ones_the_first_is_chosen():
    rows = np.repeat(np.eye(4), 3, axis=0)
    best, tried = choose(Points(rows, np.repeat(np.arange(4), 3)), grid=("none", "diffusion(neighbours=2)"))
    assert str(best) == "none"
    assert [scores["map@r"] for scores in tried.values()] == [1, 1]


REFUSED = [
    (["--rerank", "diffusoin"], "--rerank diffusoin is not known; did you mean diffusion?"),
    (["--rerank", "diffusion(omega=2)"], "omega=2.0 must lie in [0, 1)"),
    (["--rerank", "diffusion(steps=2)"], "diffusion has no setting 'steps'"),
    (["--rerank", "auto"], "--rerank auto chooses on held-out training classes; add --val-fraction 0.5, or name a re-ranker"),
    (["--rerank", "auto", "--val-fraction", "0.5"], "chooses on training classes, but it has test alone; name a re-ranker"),
    (["--rerank", "auto", "--val-fraction", "2"], "--val-fraction 2 must lie above 0 and be 1 or less; try 0.5"),
    (["--rerank", "auto", "--part", "train"], "--part train is what --rerank auto may choose on, and it must be scored on others"),
    (["--val-fraction", "0.5"], "--val-fraction 0.5 is for --rerank auto, which chooses by it; leave it out"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_mistakes_are_one_line(obdsd, tmp_path, arguments, message):
    np.savez(tmp_path / "x.npz", x=ROWS, y=LABELS)
    code, _, told = obdsd("evaluate", tmp_path / "x.npz", *arguments)
    assert code == 2
    assert message in told
    assert told.count("\n") == 1


SMALL = ["--epochs", "1", "--batch-size", "8", "--dim", "5", "--device", "cpu", "--no-report", "--preset", "ms"]


def test_a_training_scores_the_reranking_too_and_verify_checks_it(obdsd, tmp_path):
    np.savez(tmp_path / "x.npz", x=ROWS, y=LABELS, split=np.repeat(["train", "test"], 24))
    code, printed, told = obdsd("train", tmp_path / "x.npz", *SMALL, "--rerank", SPEC, "--out", tmp_path / "run")
    assert code == 0, told
    assert f"  re-ranked by {SPEC} (transductive): Recall@1 " in printed
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    obdsd("evaluate", tmp_path / "run", tmp_path / "x.npz", "--rerank", SPEC, "--no-clusters", "--out", tmp_path / "s.json")
    again = json.loads((tmp_path / "s.json").read_text())["reranked"]["scores"]
    assert {name: result["reranked"][SPEC][name] for name in MANY} == pytest.approx({name: again[name] for name in MANY}, abs=1e-6)
    chosen = ["evaluate", tmp_path / "run", tmp_path / "x.npz", "--rerank", "auto", "--val-fraction", "1"]
    assert "was trained on 24 of the 24 items of val" in obdsd(*chosen)[2]  # nothing is chosen on what it has learned
    assert obdsd("verify", tmp_path / "run")[0] == 0
    result["reranked"][SPEC]["map@r"] += 0.1
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    code, printed, told = obdsd("verify", tmp_path / "run")
    assert code != 0
    assert "re-ranked scores" in printed + told


def test_a_comparison_tells_the_reranked_means_of_each_row(obdsd, tmp_path):
    np.savez(tmp_path / "x.npz", x=ROWS, y=LABELS, split=np.repeat(["train", "test"], 24))
    small = SMALL[:-2]
    arguments = ["--presets", "ms", "--seeds", "2", "--rerank", SPEC, "--out", tmp_path / "both"]
    code, printed, told = obdsd("compare", tmp_path / "x.npz", *small, *arguments)
    assert code == 0, told
    results = [json.loads((tmp_path / "both" / "ms" / f"seed-{seed}" / "result.json").read_text()) for seed in (0, 1)]
    mean = np.mean([result["reranked"][SPEC]["map@r"] for result in results])
    plain = np.mean([result["scores"]["map@r"] for result in results])
    assert f"MAP@R {100 * mean:.1f} % (by cosine {100 * plain:.1f} %)." in printed
    assert f"ms, re-ranked by {SPEC} (transductive): Recall@1 " in (tmp_path / "both" / "comparison.md").read_text()
    lines = json.loads((tmp_path / "both" / "comparison.json").read_text())["lines"]
    assert lines[0]["reranked"][SPEC]["map@r"] == pytest.approx(mean)
    header, row = list(csv.reader((tmp_path / "both" / "comparison.csv").read_text().splitlines()))
    assert row[header.index(f"MAP@R, {SPEC}")] == f"{100 * mean:.2f}"
    assert obdsd("verify", tmp_path / "both")[0] == 0
    report = gather([tmp_path / "both" / "ms" / "seed-0"], device="cpu")
    again = results[0]["reranked"][SPEC]["map@r"]
    assert any(f"re-ranked by {SPEC} (transductive)" in told and f"MAP@R {100 * again:.1f} % " in told for told in report.sentences)


def test_a_row_that_was_not_re_ranked_has_empty_cells_in_the_columns_of_those_that_were():
    """The columns stand behind the scores: Recall@1 and MAP@R for each re-ranker that any row was scored with."""
    means = {each.name: Interval(0.3, 0.2, 0.4) for each in compared_metrics()}
    both, none = (
        Line(name=name, means=means, differences=None, over_classes=None, time_ratio=1.0, folders=[], reranked=again)
        for name, again in (("a", {SPEC: {"recall@1": 0.5, "map@r": 0.25}}), ("b", None))
    )
    shown = Comparison(lines=[both, none], seeds=[0], data="x", epochs="last epoch", scored="test", reference={})
    behind = 1 + len(means)
    titles, *cells = [row[behind : behind + 3] for row in rows_of(shown)]
    assert titles == [f"Recall@1, {SPEC}", f"MAP@R, {SPEC}", "Recall@1, difference"]
    assert cells == [["50.00", "25.00", ""], ["", "", ""]]
