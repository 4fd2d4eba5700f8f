"""The arena, run: settings chosen on held-out classes, stops, rows that cannot be trained, and what is told of all."""

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from obdsd import arena, cli
from obdsd.errors import InputError
from obdsd.experiments import compare
from obdsd.experiments.comparison import read_comparison
from obdsd.experiments.statistics import Interval
from obdsd.experiments.tables import ranked, rows_of, sentences
from obdsd.experiments.tuning import settle
from obdsd.presets import preset
from obdsd.training import RunRecord, train
from tests.made_up import write_rows

FEW = ("ms", "epshn", "proxy-gml", "ms+plg")
OPTIONS = {"epochs": 2, "batch_size": 8, "dim": 5, "lr": 0.01, "evaluate_every": 0, "device": "cpu", "epoch_batches": 2}
FLAGS = [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
PER_CLASS, CLASSES = 6, 12


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "rows.npz", 20, PER_CLASS, CLASSES)


@pytest.fixture(autouse=True, scope="module")
def few():
    patch = pytest.MonkeyPatch()
    patch.setattr(arena, "ROWS", FEW)
    yield
    patch.undo()


def run(data, out, *more, presets="arena"):
    return cli.main(["compare", str(data), "--presets", presets, "--seeds", "2", "--no-report", "--out", str(out), *FLAGS, *more])


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("arena") / "out"
    assert run(data, out, "--tune") == 0
    return out


def results(folder):
    return {str(file.parent.relative_to(folder)): json.loads(file.read_text()) for file in folder.rglob("result.json")}


def settings(folder, *names):
    config = yaml.safe_load((folder / "config.yaml").read_text())
    return tuple(config[name] for name in names)


def test_each_rows_setting_is_the_best_on_held_out_classes_and_is_tested(finished):
    chosen = json.loads((finished / "chosen.json").read_text())
    assert [*chosen] == ["ms", "epshn", "proxy-gml"]
    runs = results(finished / "search")
    assert len(runs) == 3 * 3 * 2
    for row, entry in chosen.items():
        means = {}
        for value, recalls in entry["validation"].items():
            folds = [runs[f"{row}/{value}/fold-{fold}of3-seed-100"]["scores"]["recall@1"] for fold in (0, 1)]
            assert recalls == folds
            means[value] = np.mean(folds)
        assert means[entry["chosen"]] == max(means.values())
        setting, _, value = entry["chosen"].partition("=")
        for seed in (0, 1):
            options = RunRecord.read(finished / row / f"seed-{seed}").options
            assert arena.value_of(options, setting) == float(value)
            assert (options.score, options.val_fold) == ("test", None)


@pytest.mark.parametrize(("best", "rate"), [("ms/lr=0.03", 0.03), ("ms/lr=0.01", 0.01)])
def test_rows_that_have_the_baselines_learning_rate_go_on_from_the_chosen_one(data, best, rate):
    """Not one that brings its own."""
    rows = {name: preset(name, data, **OPTIONS) for name in ("ms", "ms+psd", "supcon", "margin")}
    rows["margin"] = rows["margin"].replace(lr=0.5)
    asked = []

    def recalls_of(plan):
        asked.append({name: options.lr for name, options in plan.items()})
        return {name: [0.4, 0.6 if name in (best, "margin/lr=0.15", "ms+psd/weight=1000") else 0.5] for name in plan}

    settled, chosen = settle(rows, recalls_of)
    assert asked[0] == {"ms/lr=0.01": 0.01, "ms/lr=0.003": 0.003, "ms/lr=0.03": 0.03}
    assert {name: lr for name, lr in asked[1].items() if name.startswith("ms+psd")} == dict.fromkeys(
        ("ms+psd/weight=100", "ms+psd/weight=10", "ms+psd/weight=1000"), rate
    )
    assert {name: options.lr for name, options in settled.items()} == {"ms": rate, "ms+psd": rate, "supcon": rate, "margin": 0.15}
    assert settled["ms+psd"].weight == 1000.0
    assert [*chosen["supcon"]["validation"]] == [f"lr={rate:g}", f"lr={0.3 * rate:g}", f"lr={3 * rate:g}"]


def test_the_search_never_reads_the_test_classes(data, finished, tmp_path):
    """Other test rows, the same choice: to the last digit."""
    with np.load(data) as file:
        arrays = dict(file)
    record = RunRecord.read(finished / "ms" / "seed-0")
    tested = np.isin([f"{label}" for label in arrays["labels"]], record.per_class["labels"])
    assert 0 < tested.sum() < len(tested)
    arrays["embeddings"][tested] = np.random.default_rng(9).standard_normal(arrays["embeddings"][tested].shape)
    np.savez(tmp_path / "rows.npz", **arrays)
    assert run(tmp_path / "rows.npz", tmp_path / "out", "--tune", presets="ms,proxy-gml") == 0
    ours, theirs = (json.loads((out / "chosen.json").read_text()) for out in (tmp_path / "out", finished))
    assert ours == {row: theirs[row] for row in ("ms", "proxy-gml")}
    for config in (finished / "search").rglob("config.yaml"):
        assert settings(config.parent, "score", "seed") == ("validation", 100)
    scored = {name for run in (finished / "search").rglob("fold-*") for name in RunRecord.read(run).per_class["labels"]}
    assert scored.isdisjoint(record.per_class["labels"])


def test_what_a_reader_must_know_stands_in_the_tables(finished):
    _, comparison = read_comparison(finished)
    rows = rows_of(comparison)
    chosen = json.loads((finished / "chosen.json").read_text())
    assert [row[-1] for row in rows] == ["chosen", *(entry["chosen"] for entry in chosen.values()), ""]
    assert [(row[0], row[1]) for row in rows[-1:]] == [("ms+plg", "left out")]
    told = sentences(comparison)
    assert "Not at the baseline's budget: epshn per_class 4, not 2." in told
    assert "Left out: ms+plg: needs a file of similarities between the classes (--similarities)." in told
    assert any(sentence.startswith("Each row's main setting was chosen among three values on held-out") for sentence in told)
    assert not any("λ" in sentence for sentence in told)  # it stands in the table
    with open(finished / "comparison.csv", newline="") as file:
        assert [*csv.reader(file)][-1][:2] == ["ms+plg", "left out"]
    assert all(sentence in (finished / "comparison.md").read_text() for sentence in told)
    assert cli.main(["verify", str(finished)]) == 0


def test_after_any_stop_the_same_command_goes_on_with_what_is_left(data, finished, tmp_path, monkeypatch, capsys):
    """Stopped in the search, then in the test: all is as if it had never been."""
    trained = []

    def stopping(after):
        def begin(options, **rest):
            if len(trained) >= after:
                raise KeyboardInterrupt
            trained.append(options.out)
            return train(options, **rest)

        monkeypatch.setattr("obdsd.experiments.runs.train", begin)
        return run(data, tmp_path / "out", "--tune", presets="ms,proxy-gml")

    assert stopping(5) == 130
    assert not (tmp_path / "out" / "chosen.json").exists()
    assert "the same command goes on from there" in capsys.readouterr().err
    assert stopping(13) == 130
    first = capsys.readouterr().err
    assert "5 of 16 runs are finished and kept" in first
    assert re.search(r"^finished 6 of 16: .*, \d+ s left$", first, re.MULTILINE)
    assert re.search(r"^run 13 of 16: ms, 0$", first, re.MULTILINE)  # the first of the test
    assert stopping(99) == 0
    assert "13 of 16 runs are finished and kept" in capsys.readouterr().err
    assert len(trained) == len({*trained}) == 16
    ours, theirs = ({name: result["scores"] for name, result in results(out).items()} for out in (tmp_path / "out", finished))
    assert ours == {name: scores for name, scores in theirs.items() if "epshn" not in name}
    assert stopping(0) == 0  # nothing is left


def test_a_row_that_cannot_be_trained_is_left_out_before_any_is(data, tmp_path, monkeypatch, capsys):
    """EPSHN wants more items a class than there are."""
    monkeypatch.setitem(arena.NEEDS, "epshn", {"per_class": PER_CLASS + 2})
    out = tmp_path / "out"
    assert run(data, out, presets="arena") == 0
    said = capsys.readouterr()
    reason = re.search(r"^row epshn is left out: (.*)$", said.err, re.MULTILINE)[1]
    assert "per_class=8" in reason
    assert said.err.index("row epshn is left out") < said.err.index("run 1 of 4")
    assert not (out / "epshn").exists()
    _, comparison = read_comparison(out)
    assert [line.name for line in comparison.lines] == ["ms", "proxy-gml"]
    assert comparison.left_out == {"ms+plg": arena.without(None)["ms+plg"], "epshn": reason}
    assert f"Left out: epshn: {reason}." in said.out
    assert run(data, tmp_path / "asked", presets="ms,nt-xent") == 2  # a row that was asked for by name is refused as ever
    monkeypatch.setattr(arena, "ROWS", ("epshn", "ms"))
    assert run(data, tmp_path / "none") == 2
    assert re.match(r"obdsd: row epshn: .*; all others are compared with it\n", capsys.readouterr().err.splitlines(keepends=True)[-1])


def test_rows_that_are_named_beside_the_arena_come_in_their_place(data, monkeypatch):
    monkeypatch.setattr("obdsd.cli.compare.run", lambda options: seen.extend(cli._module("compare").asked_rows(options)))
    seen = []
    assert run(data, "out", presets="proxy-gml,arena,margin") == 0
    assert seen == ["proxy-gml", "ms", "epshn", "margin"]


def test_a_run_of_the_search_that_fails_ends_it_at_once_or_at_the_end(data, tmp_path):
    rows = {name: preset(name, data, **OPTIONS) for name in ("ms", "ms+psd", "ms+flat")}
    broken = {**rows, "ms+psd": rows["ms+psd"].replace(loss="pml(BaseMetricLossFunction)")}
    for keep_going, through in ((False, 6), (True, 12)):
        out = tmp_path / str(keep_going)
        with pytest.raises(InputError, match=r"search/ms\+psd/weight=100/fold-0of3-seed-100: epoch 1, step 1: BaseMetricLossFunction"):
            compare(broken, [0], out, show=False, tuned=True, keep_going=keep_going)
        assert len(results(out)) == through
        assert not (out / "ms" / "seed-0").exists()


def test_chosen_settings_that_are_none_are_refused(finished, tmp_path):
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    (out / "chosen.json").write_text('{"ms": {"chosen": 3}}')
    with pytest.raises(InputError, match=r"chosen.json: holds other things than chosen settings; remove it, and the same obdsd compare"):
        read_comparison(out)
    shutil.copy(finished / "chosen.json", out)
    (out / "comparison.json").write_text(json.dumps({**json.loads((out / "comparison.json").read_text()), "left_out": {"a": 3}}))
    with pytest.raises(InputError, match=r"comparison.json: its left_out holds other things than reasons; the same obdsd compare writes"):
        read_comparison(out)


def test_rows_are_ranked_by_what_can_be_told_and_many_are_told_in_groups(finished):
    _, comparison = read_comparison(finished)
    baseline, line, *_ = comparison.lines
    gains = {
        "a": (0.01, -0.01, 0.03), "b": (0.02, 0.01, 0.03), "c": (-0.03, -0.04, -0.02), "d": (0.05, 0.04, 0.06),
        "e": (-0.01, -0.02, 0.0), "f": (-0.02, -0.03, -0.01), "g": (0.0, -0.1, 0.1), "h": (0.03, -0.01, 0.07),
    }  # fmt: skip
    others = [replace(line, name=name, differences={"recall@1": Interval(*gain)}) for name, gain in gains.items()]
    many = replace(comparison, lines=[baseline, *others])
    assert "".join(each.name for each in ranked(many)) == "ms" + "db" + "hage" + "fc"
    told = sentences(many)
    assert told[1:4] == [
        "Better than ms (points of Recall@1): d +5.0, b +2.0.",
        "Not told apart from ms (points of Recall@1): h +3.0, a +1.0, g +0.0, e -1.0.",
        "Worse than ms (points of Recall@1): f -2.0, c -3.0.",
    ]
    alone = [replace(each, differences={"recall@1": Interval(each.differences["recall@1"].mean, np.nan, np.nan)}) for each in others]
    assert sentences(replace(comparison, lines=[baseline, *alone]))[1].startswith(
        "Beside ms (points of Recall@1; one seed, no conclusion): d"
    )
