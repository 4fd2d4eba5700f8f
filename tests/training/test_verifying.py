"""Each number of a run follows from the files beside it, or the check says which does not."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd.data import open_data
from obdsd.errors import InputError
from obdsd.models import Embedder
from obdsd.training import RunRecord, train
from obdsd.training.verifying import verify_run
from tests.data.trees import refused

ALL = {"evaluate_every": 1, "test_every": 1, "val_fraction": 0.3, "reference": True}
WHOLE, SAME, DATA, ROWS, SCORES = (
    "the files are whole",
    "the files say the same",
    "the data are those of the training",
    "the kept rows are the model's",
    "the scores are those of the rows",
)


def differing(folder, **how):
    """What does not agree."""
    return {check.what: list(check.differences) for check in verify_run(Path(folder), device="cpu", **how) if check.differences}


RUNS = {
    "last epoch": ("ms+obd-sd", ALL),
    "best epoch": ("ms+obd-sd", {**ALL, "select": "best", "patience": 2, "epochs": 12, "lr": 0.02}),
    "born again": ("ms+bar", {}),
    "held-out classes": ("ms+obd-sd", {**ALL, "score": "validation", "test_every": 0}),
}


@pytest.mark.parametrize(("name", "settings"), RUNS.values(), ids=RUNS.keys())
def test_a_run_as_it_was_left_agrees(finished, name, settings):
    folder = finished(name, **settings).folder
    checks = list(verify_run(folder, device="cpu", tolerance=1e-6))
    assert [check.what for check in checks] == [WHOLE, SAME, DATA, SCORES]
    assert not any(check.differences for check in checks)


@pytest.fixture
def copy(finished, tmp_path):
    return Path(shutil.copytree(finished(**ALL).folder, tmp_path / "copy"))


def edit(folder, name, change):
    content = json.loads((folder / name).read_text())
    change(content)
    (folder / name).write_text(json.dumps(content))


def raised(*path):
    """A number that is 0.01 too high."""

    def change(content):
        for name in path[:-1]:
            content = content[name]
        content[path[-1]] += 0.01

    return change


EDITED = [
    ("result.json", raised("scores", "recall@2"), {SAME: "recall@2: test in metrics.jsonl", SCORES: "recall@2: scores of result.json"}),
    ("result.json", raised("scores", "nmi"), {SCORES: "nmi: scores of result.json"}),
    ("result.json", raised("train", "density"), {SAME: "density: train in metrics.jsonl", SCORES: "density: train of result.json"}),
    ("result.json", raised("validation", "map@r"), {SAME: "map@r: validation in", SCORES: "map@r: validation of result.json"}),
    ("result.json", raised("reference", "their PCA", "map@r"), {SAME: "map@r: their PCA in", SCORES: "map@r: their PCA of result.json"}),
    ("result.json", raised("seconds"), {SAME: "seconds: "}),
    ("result.json", lambda result: result.update(seed=1), {SAME: "seed: result.json 1, config.yaml 0"}),
    ("result.json", lambda result: result["system"].update(weight=2.0), {SAME: "weight: result.json 2.0, config.yaml "}),
    ("result.json", lambda result: result.update(epoch=7), {SAME: "metrics.jsonl has the epochs [0, 1], result.json the epoch 7"}),
    ("result.json", lambda result: result.pop("system"), {SAME: "a field is not there, or not what it should be (KeyError('system'))"}),
    ("result.json", lambda result: result["reranked"].update(auto={"recall@1": 1.0}), {SCORES: "re-ranked scores (auto) of result.json"}),
    ("reference.json", raised("frozen features", "recall@1"), {SAME: "recall@1: frozen features in result.json"}),
    ("per_class.json", raised("recall@1", 0), {SCORES: ": recall@1 of per_class.json"}),
    (
        "per_class.json",
        lambda classes: classes["labels"].reverse(),
        {SCORES: "per_class.json has other classes, or other numbers of queries"},
    ),
]


@pytest.mark.parametrize(("name", "change", "expected"), EDITED, ids=[f"{name}, {next(iter(said.values()))}" for name, _, said in EDITED])
def test_a_number_that_does_not_follow_is_named(copy, name, change, expected):
    edit(copy, name, change)
    found = differing(copy)
    assert found.keys() == expected.keys()
    for what, text in expected.items():
        assert len(found[what]) == 1
        assert text in found[what][0]


def test_kept_rows_that_cannot_be_read_are_one_line(copy):
    np.save(copy / "rows.npy", np.eye(3))
    for content in (b"", b"PK", (copy / "rows.npy").read_bytes()):
        (copy / "rows.npz").write_bytes(content)
        with refused("rows.npz: is damaged (", "); remove it, and it is computed anew"):
            RunRecord.read(copy).rows()


def test_rounding_within_the_tolerance_agrees(copy):
    edit(copy, "result.json", raised("scores", "nmi"))
    assert differing(copy, tolerance=0.02) == {}


def test_other_weights_and_damaged_checkpoints_are_named(copy):
    model = Embedder.load(copy / "model")
    with torch.no_grad():
        model.head[0].weight += 0.3
    model.save(copy / "model")
    (copy / "checkpoints" / "last.pt").write_bytes(b"torn")
    found = differing(copy)
    assert found.keys() == {WHOLE, SCORES}
    weights, checkpoint = found[WHOLE]
    assert weights == "model/model.safetensors is not the file that was written with result.json"
    assert checkpoint.startswith(f"{copy}/checkpoints/last.pt: is damaged or no checkpoint (")


def test_other_data_are_named_and_moved_ones_are_found(copy, features, tmp_path):
    moved, other = tmp_path / "moved.npz", tmp_path / "other.npz"
    with np.load(features) as file:
        np.savez(moved, **file)
        np.savez(other, embeddings=file["embeddings"] + 1, labels=file["labels"])
    assert differing(copy, data=str(moved)) == {}
    assert differing(copy, data=str(other)) == {DATA: [f"data={other} changed since then"]}
    with pytest.raises(InputError, match=r"gone\.npz: no such file"):
        differing(copy, data=str(tmp_path / "gone.npz"))


def test_kept_rows_are_those_of_the_model(image_options):
    folder = train(image_options(epochs=1), show=False).folder
    kept = RunRecord.read(folder).rows()
    assert differing(folder, tolerance=1e-5) == {}
    spoilt = {**kept, "test": kept["test"][::-1]}
    np.savez(folder / "rows.npz", **spoilt)
    found = differing(folder)
    assert found.keys() == {ROWS}  # the scores are those of the rows that the model makes
    assert found[ROWS][0].startswith("test in rows.npz: a row is ")
    np.savez(folder / "rows.npz", **{**kept, "train": kept["train"][1:]})
    assert differing(folder)[ROWS][0].startswith(
        f"train in rows.npz has shape ({len(kept['train']) - 1}, 6) for {len(kept['train'])} items"
    )


def test_other_pictures_of_equal_size_are_other_data(image_options, pictures, tmp_path):
    """Also where a run is to go on, and where a report is made."""
    here = Path(shutil.copytree(pictures.removeprefix("folder:"), tmp_path / "here"))
    chosen = image_options(epochs=1, data=f"folder:{here}")
    folder = train(chosen, show=False).folder
    item = here / open_data(chosen.data)["train"].name(0)
    content = bytearray(item.read_bytes())
    content[len(content) // 2] ^= 1
    item.write_bytes(content)
    assert list(differing(folder)) == [DATA]
    (folder / "result.json").unlink()
    with pytest.raises(InputError, match=f"data={chosen.data} changed since the run in {folder} began"):
        train(chosen.replace(resume=True), show=False)
