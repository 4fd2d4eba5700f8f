"""`obdsd evaluate`: the numbers are those of the library on the same rows, and what cannot be scored is one line."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from obdsd import terminal
from obdsd.evaluation import evaluate, metric

RNG = np.random.default_rng(5)
LABELS = np.repeat(["ant", "bee", "cat", "dog", "eel", "fox"], 5)
ROWS = (np.eye(6)[np.repeat(np.arange(6), 5)] + RNG.normal(scale=0.6, size=(30, 6))).astype(np.float32)


def scores(path) -> dict:
    return json.loads(path.read_text())["scores"]


def expected(result) -> dict:
    """What the JSON file should say."""
    return json.loads(json.dumps(result.as_dict()))


@pytest.mark.parametrize("kind", ["npz", "npy", "parquet"])
def test_a_file_without_a_split_is_evaluated_whole(obdsd, tmp_path, kind):
    file = tmp_path / f"x.{kind}"
    if kind == "npz":
        np.savez(file, features=ROWS, label=LABELS)
    elif kind == "npy":
        np.save(file, ROWS)
        np.save(tmp_path / "labels.npy", LABELS)
    else:
        pa.parquet.write_table(pa.table({"vector": list(ROWS.astype(np.float64)), "y": LABELS}), file, row_group_size=7)
    code, printed, _ = obdsd("evaluate", file, "--ks", "1,10", "--restarts", 3, "--seed", 2, "--out", tmp_path / "s.json")
    result = evaluate(ROWS, LABELS, ks=(1, 10), seed=2, restarts=3)
    assert code == 0
    assert scores(tmp_path / "s.json") == expected(result)
    first, *lines, last = printed.splitlines()
    assert first == f"{file}: all of 30 items, 6 classes"
    assert [line.split() for line in lines] == [
        [*metric(name).title.split(), metric(name).text(value), *["%"] * metric(name).percent] for name, value in result.values.items()
    ]
    assert last == "Queries                        30"


def test_a_files_own_split_says_what_is_evaluated(obdsd, tmp_path):
    split = np.array(["train", "val", "test"] * 10)
    np.savez(tmp_path / "x.npz", x=ROWS, y=LABELS, split=split)
    for part in ("test", "train", "val"):
        obdsd("evaluate", tmp_path / "x.npz", "--part", part, "--ks", "1", "--out", tmp_path / "s.json")
        chosen = split == part
        assert scores(tmp_path / "s.json") == expected(evaluate(ROWS[chosen], LABELS[chosen], ks=(1,)))


def test_query_and_gallery_with_groups_need_no_training_part(obdsd, tmp_path):
    split, group = np.array(["query", "gallery", "gallery"] * 10), np.arange(30) % 4
    columns = {"embeddings": list(ROWS), "labels": LABELS, "split": split, "group": group}
    pa.parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    printed = obdsd("evaluate", tmp_path / "x.parquet", "--ks", "1,20", "--no-clusters", "--out", tmp_path / "s.json")[1]
    q, g = split == "query", split == "gallery"
    result = evaluate(ROWS[g], LABELS[g], (1, 20), query=(ROWS[q], LABELS[q], group[q]), groups=group[g], clusters=False)
    assert scores(tmp_path / "s.json") == expected(result)
    assert printed.startswith(f"{tmp_path / 'x.parquet'}: gallery of 20 items and query of 10 items, 6 classes\n")
    assert "NMI" not in printed


def test_lone_queries_and_unused_directions_are_told(obdsd, tmp_path):
    rows = np.concatenate([ROWS, np.ones((1, 6))])
    rows[:, 5] = 0
    np.savez(tmp_path / "x.npz", x=rows, y=[*LABELS, "gnu"])
    printed = obdsd("evaluate", tmp_path / "x.npz", "--out", tmp_path / "s.json")[1]
    assert "inf    a direction is not used\n" in printed
    assert printed.endswith("      30    1 more are alone in their class and do not count\n")
    assert scores(tmp_path / "s.json")["spectral-decay"] is None


def test_the_json_says_what_was_done_and_each_class_on_demand(obdsd, tmp_path):
    np.savez(tmp_path / "x.npz", x=ROWS, y=LABELS)
    obdsd("evaluate", tmp_path / "x.npz", "--per-class", "--out", tmp_path / "s.json")
    record = json.loads((tmp_path / "s.json").read_text())
    assert record["data"] == {"classes": 6, "items": {"test": 30}}
    assert record["options"]["ks"] == [1, 2, 4, 8]
    assert {"obdsd", "python", "torch", "faiss-cpu"} <= set(record["versions"])
    found = evaluate(ROWS, LABELS, details=True).per_class
    assert list(record["per_class"]) == list(found.labels)
    assert record["per_class"]["cat"] == {"queries": 5, **{name: values[2] for name, values in found.values.items()}}


def numbers(tree) -> list[float]:
    return [number for value in tree.values() for number in (numbers(value) if isinstance(value, dict) else [value])]


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
@pytest.mark.parametrize(
    ("model", "data", "seen"),
    [("tiny", "manifest:list.csv", ()), ("head", "rows.npz", ()), ("tiny-conv:none", "manifest:list.csv", ("--size", 20, "--resize", 30))],
)
def test_embedding_first_and_evaluating_later_gives_the_same(obdsd, made, tmp_path, model, data, seen, suffix):
    np.savez(made / "rows.npz", x=ROWS, y=LABELS)
    options = ["--ks", "1,3", "--per-class", "--out"]
    assert obdsd("evaluate", model, data, *seen, *options, tmp_path / "at-once.json")[0] == 0
    assert obdsd("embed", model, data, *seen, "--out", tmp_path / f"x.{suffix}")[0] == 0
    assert obdsd("evaluate", tmp_path / f"x.{suffix}", *options, tmp_path / "later.json")[0] == 0
    at_once, later = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("at-once", "later"))
    assert at_once["data"] == later["data"]
    for key in ("scores", "per_class"):  # other batches round otherwise
        assert numbers(at_once[key]) == pytest.approx(numbers(later[key]), rel=1e-4)


def test_the_seed_of_the_split_is_not_that_of_k_means(obdsd, tmp_path):
    np.savez(tmp_path / "x.npz", x=ROWS, y=LABELS)
    tested = {}
    for name, options in {"plain": [], "seed": ["--seed", "1"], "split": ["--split-seed", "1"]}.items():
        obdsd("evaluate", "head", tmp_path / "x.npz", "--per-class", "--out", tmp_path / "s.json", *options)
        tested[name] = list(json.loads((tmp_path / "s.json").read_text())["per_class"])
    assert tested["plain"] == tested["seed"] != tested["split"]


NAMES = np.array([f"{i // 2}.jpg" for i in range(30)])
BAD_FILES = [  # more of them in tests/data: test_embeddings, test_check
    ({"x": ROWS}, "scoring needs labels, but it has no column label, "),
    ({"x": ROWS[::5], "y": LABELS[::5]}, "--ks 8 is more than the 5 items of test that can be found"),
    ({"x": ROWS, "y": LABELS, "names": NAMES}, "test holds '0.jpg' 2 times; an item that repeats finds itself, keep one"),
    ({"x": ROWS, "y": LABELS, "split": ["query"] * 30}, "--part test is not there; it has query, choose one of these or split otherwise"),
]


@pytest.mark.parametrize(("arrays", "message"), BAD_FILES, ids=[message[:40] for _, message in BAD_FILES])
def test_files_that_cannot_be_scored_are_refused(refused, tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    assert message in refused("evaluate", tmp_path / "x.npz")


ARGUMENTS = [
    (["tiny"], "tiny: one word alone must be an embeddings file (.npz, .npy, .parquet, .pt, .safetensors); else give MODEL DATA"),
    (["tiny", "embeddings:rows.npz"], "embeddings:rows.npz: holds embeddings, but MODEL tiny is made for images; give data that it fits"),
    (["head", "manifest:list.csv"], "manifest:list.csv: holds images, but MODEL head is made for embeddings; give data that it fits"),
    (["head", "wide.npz"], "wide.npz: vectors have length 7, but MODEL head takes 6; give the features that it was trained on"),
    (["rows.npz", "--ks", "1,x"], "--ks x must be a whole number"),
    (["rows.npz", "--ks", "0"], "--ks 0 must be 1 or more"),
    (["rows.npz", "--ks", ","], "--ks must hold a number; try 1,2,4,8"),
    (["rows.npz", "--ks", "30"], "--ks 30 is more than the 29 items of test that can be found; ask for fewer"),
    (["tiny", "manifest:list.csv", "--ks", "13"], "--ks 13 is more than the 12 items of gallery that can be found"),
    (["rows.npz", "--seed", "2147483648"], "--seed 2147483648 must be from 0 to less than 2147483647"),
    (["rows.npz", "--restarts", "0"], "--restarts 0 must be 1 or more"),
    (["rows.npz", "--out", "s.npz"], "--out 's.npz' must end in .json; rename it"),
    (["rows.npz", "--out", "rows.npz/s.json"], "rows.npz/s.json: cannot be written ("),
    (["rows.npz", "--per-class"], "--per-class needs a JSON file to go to; add --out scores.json"),
    (["rows.npz", "--split-seed", "1"], "--split-seed 1 is for a model and its data; leave it out for an embeddings file alone"),
    (["rows.npz", "--part", "dev"], "--part dev must be one of test, train, val"),
    (["rows.npz", "--restart", "3"], "--restart is no option of obdsd evaluate; did you mean --restarts?"),
]


@pytest.mark.parametrize(("arguments", "line"), ARGUMENTS, ids=[" ".join(arguments) for arguments, _ in ARGUMENTS])
def test_mistakes_are_one_line(refused, made, arguments, line):
    np.savez(made / "rows.npz", x=ROWS, y=LABELS)
    np.savez(made / "wide.npz", x=np.ones((30, 7)), y=LABELS)
    assert refused("evaluate", *arguments).startswith(line)


def test_a_full_disk_leaves_the_old_scores_whole(obdsd, full_disk, tmp_path):
    np.savez(tmp_path / "x.npz", x=ROWS, y=LABELS)
    (tmp_path / "s.json").write_text("precious")
    code, printed, line = obdsd("evaluate", tmp_path / "x.npz", "--out", tmp_path / "s.json")
    assert code == 2
    assert "Recall@1" in printed  # the work is not lost
    assert line.startswith(f"obdsd: {tmp_path / 's.json'}: cannot be written (No space left on device)")
    assert (tmp_path / "s.json").read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 2


def test_progress_is_told_in_lines_where_there_is_no_terminal(obdsd, tmp_path, monkeypatch):
    monkeypatch.setattr(terminal, "LINE_SECONDS", 0.001)
    told = obdsd("evaluate", "tiny", "manifest:list.csv", "--part", "train", "--batch-size", 8)[2].splitlines()
    begun, under_way = r"0 of \d+, \d+ s so far", r"\d+ of \d+, ([\d,]+ images/s, )?\d+ s left"
    assert all(re.fullmatch(f"(embedding|search|clustering): ({begun}|{under_way})", line) for line in told)
    assert told[0].startswith("embedding: 0 of 16, ")
