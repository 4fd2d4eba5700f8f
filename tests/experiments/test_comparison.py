"""Comparisons: every run once, paired, whatever was finished before."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from obdsd.errors import InputError
from obdsd.experiments import compare
from obdsd.experiments.tables import caption, markdown, plain_words, text_table, write_tables
from obdsd.presets import preset
from obdsd.training import train
from tests.made_up import write_rows

SEEDS = (3, 4)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = write_rows(tmp_path_factory.mktemp("data") / "rows.npz", 20, 6, 12)
    small = {"epochs": 2, "batch_size": 12, "dim": 5, "lr": 1e-3, "evaluate_every": 0, "device": "cpu"}
    return {name: preset(name, path, **small) for name in ("ms", "ms+psd", "ms+obd-sd")}


@pytest.fixture(scope="module")
def finished(rows, tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison")
    return compare(rows, SEEDS, out, show=False), out


def results(out, name):
    return [json.loads((out / name / f"seed-{seed}" / "result.json").read_text()) for seed in SEEDS]


def test_the_table_is_what_the_runs_say(finished):
    comparison, out = finished
    assert [line.name for line in comparison.lines] == ["ms", "ms+psd", "ms+obd-sd"]
    ours, base = results(out, "ms+obd-sd"), results(out, "ms")
    line = comparison.lines[2]
    recalls = np.array([[result["scores"]["recall@1"] for result in side] for side in (ours, base)])
    assert line.means["recall@1"].mean == pytest.approx(recalls[0].mean())
    assert line.differences["recall@1"].mean == pytest.approx((recalls[0] - recalls[1]).mean())
    assert line.over_classes.mean == pytest.approx((recalls[0] - recalls[1]).mean(), abs=1e-5)
    assert line.means["density"].mean == pytest.approx(np.mean([result["train"]["density"] for result in ours]))
    assert line.means["nmi"].mean == pytest.approx(np.mean([result["scores"]["nmi"] for result in ours]))
    assert line.time_ratio == pytest.approx(np.median([o["seconds"] / b["seconds"] for o, b in zip(ours, base, strict=True)]))
    assert comparison.reference["frozen features"] == base[0]["reference"]["frozen features"]["recall@1"]


def test_rows_are_paired_by_seed(finished):
    """The same seed is the same start and the same batches: the first epoch, before any distillation, is the same in every row."""
    _, out = finished
    first = [
        json.loads((out / name / "seed-3" / "metrics.jsonl").read_text().splitlines()[0])["loss"]["base"]
        for name in ("ms", "ms+psd", "ms+obd-sd")
    ]
    assert first[0] == first[1] == first[2]


def test_finished_runs_are_not_repeated_and_interrupted_ones_continue(rows, finished, tmp_path, monkeypatch):
    comparison, before = finished
    out = tmp_path / "copy"
    shutil.copytree(before, out)
    (out / "ms" / "seed-4" / "result.json").unlink()  # stopped after its last epoch
    shutil.rmtree(out / "ms+psd" / "seed-3")
    config = out / "ms+psd" / "seed-4" / "config.yaml"
    config.write_text(config.read_text().replace("affinity_power: 1.0\n", ""))  # finished by a version that had no such option
    assert "affinity_power" not in config.read_text()
    trained = []

    def counted(options, **rest):
        trained.append((Path(options.out).parent.name, options.seed, options.resume))
        return train(options, **rest)

    monkeypatch.setattr("obdsd.experiments.comparison.train", counted)
    again = compare(rows, SEEDS, out, show=False)
    assert sorted(trained) == [("ms", 4, True), ("ms+psd", 3, False)]
    for old, new in zip(comparison.lines, again.lines, strict=True):
        assert (old.means, old.differences, old.over_classes) == (new.means, new.differences, new.over_classes)


def test_several_processes_give_the_same_numbers(rows, finished, tmp_path):
    comparison, _ = finished
    two = {name: rows[name] for name in ("ms", "ms+psd")}
    again = compare(two, SEEDS, tmp_path, jobs=2, show=False)
    for old, new in zip(comparison.lines, again.lines, strict=False):
        assert old.means["recall@1"] == pytest.approx(new.means["recall@1"], abs=0.02)  # another number of threads may round otherwise


def test_a_folder_of_other_settings_is_refused(rows, finished):
    _, out = finished
    other = {name: replace(options, weight=3.0) for name, options in rows.items()}
    with pytest.raises(InputError, match=r"seed-3 holds a run with weight=100.0, not 3.0; choose another out or remove it"):
        compare(other, SEEDS, out, show=False)


def test_other_data_than_a_finished_runs_are_noticed(rows, finished, tmp_path):
    _, before = finished
    out, copy = tmp_path / "copy", tmp_path / "rows.npz"
    shutil.copytree(before, out)
    with np.load(rows["ms"].data) as file:
        np.savez(copy, embeddings=file["embeddings"][::-1], labels=file["labels"])
    for seed in SEEDS:
        config = out / "ms" / f"seed-{seed}" / "config.yaml"
        config.write_text(config.read_text().replace(rows["ms"].data, str(copy)))
    with pytest.raises(InputError, match=r"seed-3 holds a run on other data than .* holds now; choose another out"):
        compare({"ms": replace(rows["ms"], data=str(copy))}, SEEDS, out, show=False)


def test_rows_must_be_comparable(rows, tmp_path):
    with pytest.raises(InputError, match="rows ms and other differ in split_seed; they would be scored on different classes"):
        compare({"ms": rows["ms"], "other": replace(rows["ms"], split_seed=7)}, SEEDS, tmp_path, show=False)
    with pytest.raises(InputError, match="rows ms and twin have the same settings; there is nothing to compare"):
        compare({"ms": rows["ms"], "twin": replace(rows["ms"])}, SEEDS, tmp_path, show=False)


def test_a_run_that_fails_in_another_process_is_named(rows, tmp_path):
    broken = {"ms": replace(rows["ms"], loss="nonsense")}
    with pytest.raises(InputError, match=r"ms/seed-[34]: loss=nonsense is not known"):
        compare(broken, SEEDS, tmp_path, jobs=2, show=False)


def test_a_fault_ends_the_other_runs_at_once(rows, tmp_path):
    """They keep their state; nobody waits for days to hear of a typing mistake."""
    long = replace(rows["ms"], epochs=20000, evaluate_every=0)
    broken = replace(long, loss="nonsense")
    with pytest.raises(InputError, match=r"broken/seed-3: loss=nonsense is not known"):
        compare({"long": long, "broken": broken}, [3], tmp_path, jobs=2, show=False)
    assert not (tmp_path / "long" / "seed-3" / "result.json").exists()


def test_tables(finished, tmp_path):
    comparison, _ = finished
    write_tables(comparison, tmp_path)
    record = json.loads((tmp_path / "comparison.json").read_text())
    assert record["lines"][1]["differences"]["map@r"]["mean"] == comparison.lines[1].differences["map@r"].mean
    with open(tmp_path / "comparison.csv", newline="") as file:
        table = list(csv.reader(file))
    assert [row[0] for row in table] == ["", "ms", "ms+psd", "ms+obd-sd"]
    assert float(table[2][1]) == pytest.approx(100 * comparison.lines[1].means["recall@1"].mean, abs=0.005)
    written = (tmp_path / "comparison.md").read_text()
    assert written == markdown(comparison)
    assert caption(comparison) in written
    lines = text_table(comparison).splitlines()
    assert len(lines) == 4
    assert {line.rindex("1") for line in lines[1:2]} == {len(lines[0]) - 1}


def test_plain_words_say_what_the_interval_says(finished):
    comparison, _ = finished
    baseline, second, third = comparison.lines
    gains = {"low": (0.02, 0.01, 0.03), "none": (0.01, -0.01, 0.03), "high": (-0.02, -0.03, -0.01)}
    interval = type(second.differences["recall@1"])
    sentences = {}
    for name, ends in gains.items():
        line = replace(second, differences={**second.differences, "recall@1": interval(*ends)})
        sentences[name] = plain_words(replace(comparison, lines=[baseline, line])).splitlines()[1]
    assert sentences["low"].endswith("(95 % interval +1.00 to +3.00): better than ms.")
    assert sentences["none"].endswith("no difference can be told from ms.")
    assert sentences["high"].endswith("worse than ms.")
    single = replace(third, differences={**third.differences, "recall@1": interval(0.1, float("nan"), float("nan"))})
    assert plain_words(replace(comparison, lines=[baseline, single])).endswith("with a single seed: no interval, no conclusion.")
