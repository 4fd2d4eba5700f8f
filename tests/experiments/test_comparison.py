"""Comparisons: every run once, paired, whatever was finished before."""

import csv
import itertools
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from obdsd.errors import InputError
from obdsd.experiments import compare
from obdsd.experiments.comparison import Comparison, Line, measure_times, read_comparison
from obdsd.experiments.statistics import Interval, class_interval, t_interval
from obdsd.experiments.tables import aligned, caption, header, rows_of, sentences, write_tables
from obdsd.files import csv_table, read_lines
from obdsd.presets import preset
from obdsd.training import train
from tests.made_up import write_rows

SEEDS = (3, 4)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = write_rows(tmp_path_factory.mktemp("data") / "rows.npz", 20, 6, 12)
    small = {
        "epochs": 2,
        "batch_size": 12,
        "dim": 5,
        "lr": 1e-3,
        "evaluate_every": 0,
        "device": "cpu",
        "epoch_batches": 2,
        "keep_checkpoints": True,
    }
    return {name: preset(name, path, **small) for name in ("ms", "ms+psd", "ms+obd-sd")}


@pytest.fixture(scope="module")
def finished(rows, tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison")
    return compare(rows, SEEDS, out, show=False), out


def result(out, name, seed):
    return json.loads((out / name / f"seed-{seed}" / "result.json").read_text())


def test_the_table_is_what_the_runs_say(finished):
    comparison, out = finished
    assert [line.name for line in comparison.lines] == ["ms", "ms+psd", "ms+obd-sd"]
    ours, base = ([result(out, name, seed) for seed in SEEDS] for name in ("ms+obd-sd", "ms"))
    line = comparison.lines[2]
    for part, metric in (("scores", "recall@1"), ("scores", "nmi"), ("train", "density")):  # the last of all seeds different
        values = np.array([[run[part][metric] for run in side] for side in (ours, base)])
        assert line.means[metric] == pytest.approx(t_interval(values[0]))
        assert line.differences[metric] == pytest.approx(t_interval(values[0] - values[1]))
    assert line.over_classes.mean == pytest.approx(line.differences["recall@1"].mean, abs=1e-5)
    assert line.time_ratio == json.loads((out / "times.json").read_text())["ms+obd-sd beside ms"] > 0
    assert comparison.reference["frozen features"] == base[0]["reference"]["frozen features"]["recall@1"]


def test_times_are_measured_once_and_left_out_where_they_are_not_known(finished, rows, tmp_path):
    out = copied(finished, tmp_path)
    before = (out / "times.json").read_bytes()
    again = compare(rows, SEEDS, out, show=False)
    write_tables(again, out)
    assert ((out / "times.json").read_bytes(), header()[-1], rows_of(again)[0][-1]) == (before, "time", "time")
    assert "Time is that of a step beside one of ms, in turns" in caption(again)
    (out / "times.json").unlink()
    _, untimed = read_comparison(out)
    assert [line.time_ratio for line in untimed.lines] == [1.0, None, None]
    assert [row[-1] for row in rows_of(untimed)][:2] == ["over classes", ""]
    assert "Time is" not in caption(untimed)
    (out / "times.json").write_text('{"ms+psd beside ms": "long"}')
    with pytest.raises(InputError, match=r"times.json: holds other things than times; remove it, and the same obdsd compare measures them"):
        read_comparison(out)


def test_a_time_that_cannot_be_measured_is_told(finished, tmp_path, capsys):
    """A teacher that is gone: the comparison is complete without its time."""
    out = copied(finished, tmp_path)
    write_tables(finished[0], out)
    (out / "times.json").unlink()
    runs, _ = read_comparison(out)
    gone = replace(runs["ms+psd"][0], options=runs["ms+psd"][0].options.replace(teacher=f"frozen(source={tmp_path / 'gone'})"))
    assert measure_times({"ms": runs["ms"], "ms+psd": [gone]}, out, show=True) == {}
    assert re.search(r"^the time of ms\+psd is not known: .*gone", capsys.readouterr().err, re.MULTILINE)


@pytest.mark.parametrize(
    ("recalls", "untrained", "sentence"),
    [
        ([0.3, 0.5], {"frozen features": 0.376, "their PCA": 0.35}, "a is below frozen features without any training (37.6 %): begin"),
        ([0.3, 0.2, 0.5], {"frozen features": 0.376}, "a, b are below frozen features without any training (37.6 %): begin"),
        (
            [0.3, 0.2],
            {"frozen features": 0.3, "their PCA": 0.4},
            "Every row is below their PCA to the embedding's length without any training (40.0 %): begin",
        ),
        ([0.3], {"frozen features": 0.4}, "a is below frozen features without any training (40.0 %): begin"),
        ([0.4, 0.5], {"frozen features": 0.4}, None),
        ([0.1, 0.2], {}, None),
    ],
)
def test_words_say_where_training_made_it_worse(recalls, untrained, sentence):
    def line(name, recall):
        means = {"recall@1": Interval(recall, math.nan, math.nan)}
        return Line(name=name, means=means, differences=means, over_classes=None, time_ratio=None, folders=[])

    lines = [line(name, recall) for name, recall in zip("abc", recalls, strict=False)]
    shown = Comparison(lines=lines, seeds=[0], data="x", epochs="last epoch", scored="test", reference=untrained)
    last = sentences(shown)[-1]
    assert last.startswith(sentence) if sentence else len(sentences(shown)) == len(lines)


def test_words_say_which_weight_each_row_has_where_they_differ(finished):
    comparison, out = finished
    assert [line.weight for line in comparison.lines] == [
        None,
        *(result(out, name, 3)["system"]["weight"] for name in ("ms+psd", "ms+obd-sd")),
    ]

    def told(*weights):
        lines = [replace(line, weight=weight) for line, weight in zip(comparison.lines, weights, strict=True)]
        return [words for words in sentences(replace(comparison, lines=lines)) if "λ" in words]

    assert told(None, 100.0, 1.0) == ["Weight λ of the distillation: ms+psd 100, ms+obd-sd 1."]
    assert told(None, 100.0, 100.0) == told(None, None, 1.0) == told(None, None, None) == []


def test_rows_are_paired_by_seed(finished):
    """The same seed is the same start and the same batches: the first epoch, before any distillation, is the same in every row."""
    first = [read_lines(finished[1] / name / "seed-3" / "metrics.jsonl")[0]["loss"]["base"] for name in ("ms", "ms+psd", "ms+obd-sd")]
    assert first[0] == first[1] == first[2]


def copied(finished, tmp_path):
    return Path(shutil.copytree(finished[1], tmp_path / "copy"))


def test_finished_runs_are_not_repeated_and_interrupted_ones_continue(rows, finished, tmp_path, monkeypatch, capsys):
    comparison, out = finished[0], copied(finished, tmp_path)
    (out / "ms" / "seed-4" / "result.json").unlink()  # stopped after its last epoch
    shutil.rmtree(out / "ms+psd" / "seed-3")
    config = out / "ms+psd" / "seed-4" / "config.yaml"
    before = config.read_text()
    config.write_text(before.replace("micro_batch: 0\n", ""))  # finished by a version that had no such option
    assert config.read_text() != before
    trained = []

    def counted(options, **rest):
        trained.append((Path(options.out).parent.name, options.seed, options.resume))
        return train(options, **rest)

    monkeypatch.setattr("obdsd.experiments.runs.train", counted)
    again = compare(rows, SEEDS, out)
    told = [line for line in capsys.readouterr().err.splitlines() if re.match(r"run |finished |\d of ", line)]
    kept, *rest = "4 of 6 runs are finished and kept", "5 of 6: ms+psd, 3", "6 of 6: ms, 4"
    assert told[:2] == [kept, f"run {rest[0]}"]
    assert re.fullmatch(rf"finished {re.escape(rest[0])}, \d+ s left", told[2])
    assert told[3:] == [f"run {rest[1]}", f"finished {rest[1]}"]
    assert sorted(trained) == [("ms", 4, True), ("ms+psd", 3, False)]
    for old, new in zip(comparison.lines, again.lines, strict=True):
        assert (old.means, old.differences, old.over_classes) == (new.means, new.differences, new.over_classes)


def test_more_processes_than_the_machine_carries_are_refused_before_any_run(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    asked = {"ms": rows["ms"].replace(workers=5)}
    with pytest.raises(InputError, match=r"^jobs × workers=10 is more processes than 2 cores"):
        compare(asked, SEEDS, tmp_path / "out", jobs=2, show=False)
    with pytest.raises(InputError, match=r"^workers=99 is more processes than 2 cores"):
        train(rows["ms"].replace(workers=99, out=str(tmp_path / "out" / "run")), show=False)
    assert not (tmp_path / "out").exists()


def test_several_processes_give_the_same_numbers(rows, finished, tmp_path):
    comparison, _ = finished
    again = compare({name: rows[name] for name in ("ms", "ms+psd")}, SEEDS[:1], tmp_path, jobs=2, show=False)
    for name in ("ms", "ms+psd"):
        alone, beside = (result(out, name, SEEDS[0])["scores"]["recall@1"] for out in (finished[1], tmp_path))
        assert alone == pytest.approx(beside, abs=0.02)  # another number of threads may round otherwise
    assert [line.name for line in again.lines] == [line.name for line in comparison.lines[:2]]


def test_a_folder_of_other_settings_is_refused(rows, finished):
    other = {name: options.replace(weight=3.0) for name, options in rows.items()}
    with pytest.raises(InputError, match=r"seed-3 holds a run with weight=100.0, not 3.0; choose another out or remove it"):
        compare(other, SEEDS, finished[1], show=False)
    other = {"ms+obd-sd": rows["ms+obd-sd"].replace(targets="batch-diffusion(omega=0.5)")}
    with pytest.raises(InputError, match=r"a run with targets=batch-diffusion\(omega=0.3\), not batch-diffusion\(omega=0.5\); choose"):
        compare(other, SEEDS, finished[1], show=False)


def test_other_data_than_a_finished_runs_are_noticed(rows, finished, tmp_path):
    out, data = copied(finished, tmp_path), tmp_path / "rows.npz"
    with np.load(rows["ms"].data) as file:
        np.savez(data, embeddings=file["embeddings"][::-1], labels=file["labels"])
    for seed in SEEDS:
        config = out / "ms" / f"seed-{seed}" / "config.yaml"
        config.write_text(config.read_text().replace(rows["ms"].data, str(data)))
    with pytest.raises(InputError, match=r"seed-3 holds a run on other data than .* holds now; choose another out"):
        compare({"ms": rows["ms"].replace(data=str(data))}, SEEDS, out, show=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split_seed": 7}, "rows ms and other differ in split_seed; they would be scored on different classes"),
        ({}, "rows ms and other have the same settings; there is nothing to compare"),
        ({"targets": "batch-diffusion(omega=1.5)"}, r"row other: targets=batch-diffusion\(omega=1.5\): omega=1.5 must lie in \[0, 1\)"),
    ],
)
def test_rows_must_be_comparable(rows, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        compare({"ms": rows["ms"], "other": rows["ms"].replace(**changes)}, SEEDS, tmp_path, show=False)
    assert not list(tmp_path.iterdir())


def test_a_fault_in_another_process_is_named_and_ends_the_other_runs_at_once(rows, tmp_path):
    """They keep their state; nobody waits for days to hear of a mistake."""
    long = rows["ms"].replace(epochs=20000, epoch_batches=0)
    broken = long.replace(loss="pml(BaseMetricLossFunction)")  # its first step fails
    with pytest.raises(InputError, match=r"broken/seed-3: epoch 1, step 1: BaseMetricLossFunction of .*: NotImplementedError"):
        compare({"long": long, "broken": broken}, [3], tmp_path, jobs=2, show=False)
    assert not (tmp_path / "long" / "seed-3" / "result.json").exists()


def test_a_finished_comparison_is_read_again(finished, tmp_path):
    comparison, out = finished
    write_tables(comparison, out)
    runs, again = read_comparison(out)
    assert again == comparison
    assert {name: [record.options.seed for record in records] for name, records in runs.items()} == {name: [*SEEDS] for name in runs}
    (tmp_path / "comparison.json").write_text('{"lines": 3}')
    with pytest.raises(InputError, match=r"comparison.json: is no comparison of obdsd; give the folder of a finished obdsd compare"):
        read_comparison(tmp_path)
    for number, remedy in ((0, "the same obdsd compare writes it anew"), (99, "update obdsd")):
        (tmp_path / "comparison.json").write_text(json.dumps({**json.loads((out / "comparison.json").read_text()), "format": number}))
        with pytest.raises(InputError, match=rf"comparison.json: is a comparison of another version .*, not 1\); {remedy}"):
            read_comparison(tmp_path)
    with pytest.raises(InputError, match=r"nowhere: no such folder"):
        read_comparison(tmp_path / "nowhere")


def test_tables(finished, tmp_path):
    comparison, _ = finished
    write_tables(comparison, tmp_path)
    record = json.loads((tmp_path / "comparison.json").read_text())
    assert record["lines"][1]["differences"]["map@r"]["mean"] == comparison.lines[1].differences["map@r"].mean
    with open(tmp_path / "comparison.csv", newline="") as file:
        table = list(csv.reader(file))
    assert table[0] == header()
    assert table[0][1:4] == ["Recall@1", "R-precision", "MAP@R"]
    assert float(table[2][1]) == pytest.approx(100 * comparison.lines[1].means["recall@1"].mean, abs=0.005)
    assert caption(comparison) in (tmp_path / "comparison.md").read_text()
    lines = aligned(rows_of(comparison)).splitlines()
    assert len(lines) == 4
    assert lines[1].rindex("1") == len(lines[0]) - 1


@pytest.mark.parametrize("name", ["..", "../other", "/etc", ""])
def test_no_row_leads_out_of_a_comparisons_folder(tmp_path, name):
    (tmp_path / "comparison.json").write_text(json.dumps({"lines": [{"name": name}], "seeds": [0]}))
    with pytest.raises(InputError, match=f"row={name!r} names a folder; begin with a letter or digit"):
        read_comparison(tmp_path)


def test_no_cell_is_a_formula_to_a_spreadsheet():
    formulas = ["=1+1", "+A1", "-2+3+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "-x.npz"]
    numbers = ["", "-0.02", "+1.3 %", "-0.51 to +0.70", "ms+psd", "1e-5", "R@1 −"]
    (row,) = csv.reader(csv_table([[*formulas, *numbers]]).splitlines())
    assert row == [*(f"'{formula}" for formula in formulas), *numbers]


GAINS = {
    (0.02, 0.01, 0.03): "+2.0 points (95 % interval +1.00 to +3.00): better than ms.",
    (0.01, -0.01, 0.03): "+1.0 points (95 % interval -1.00 to +3.00): no clear difference from ms.",
    (-0.02, -0.03, -0.01): "-2.0 points (95 % interval -3.00 to -1.00): worse than ms.",
    (0.1, float("nan"), float("nan")): "+10.0 points against ms. One seed: no interval over seeds, no conclusion.",
}


@pytest.mark.parametrize(("gain", "words"), GAINS.items(), ids=["better", "neither", "worse", "one seed"])
def test_sentences_say_what_the_interval_says(finished, gain, words):
    comparison, _ = finished
    baseline, second, _ = comparison.lines
    line = replace(second, differences={**second.differences, "recall@1": Interval(*gain)})
    first, told, *_ = sentences(replace(comparison, lines=[baseline, line]))
    assert first == f"ms: for {100 * baseline.means['recall@1'].mean:.1f} % of the queries the nearest other item is of their class."
    assert told == f"ms+psd: {100 * second.means['recall@1'].mean:.1f} %, {words}"


# ---- Intervals.


def test_the_t_interval_is_scipys():
    values = np.random.default_rng(0).standard_normal(7)
    truth = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    found = t_interval(values)
    assert (found.mean, found.low, found.high) == pytest.approx((values.mean(), truth.low, truth.high))


def test_one_seed_has_no_interval():
    found = t_interval(np.array([0.4]))
    assert found.mean == 0.4
    assert np.isnan([found.low, found.high]).all()
    assert not found.tells_apart


def test_the_bootstrap_over_classes_is_that_of_all_resamples():
    """Three classes: all 27 resamples are equally likely, so their exact quantiles are known."""
    differences, queries = np.array([0.1, -0.2, 0.4]), np.array([10, 20, 30])
    means = [np.average(differences[list(draw)], weights=queries[list(draw)]) for draw in itertools.product(range(3), repeat=3)]
    found = class_interval(differences, queries)
    assert found.mean == pytest.approx(np.average(differences, weights=queries))
    assert (found.low, found.high) == pytest.approx((min(means), max(means)))
    inner = class_interval(differences, queries, coverage=0.6)
    assert (inner.low, inner.high) == pytest.approx(np.quantile(means, [0.2, 0.8], method="inverted_cdf"))
    assert found == class_interval(differences, queries)


@pytest.mark.parametrize(("interval", "apart"), [((1, 0.5, 2), True), ((-1, -2, -0.5), True), ((1, -0.5, 2), False)])
def test_an_interval_without_zero_tells_apart(interval, apart):
    assert Interval(*interval).tells_apart is apart
