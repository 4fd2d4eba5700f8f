"""What a run leaves, and what is refused where a finished run is wanted."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from sklearn.decomposition import PCA

from obdsd.data import open_data
from obdsd.data.transforms import evaluation_transform
from obdsd.errors import InputError
from obdsd.evaluation import evaluate
from obdsd.evaluation.embedding import embed
from obdsd.evaluation.geometry import density, spectral_decay
from obdsd.files import write_json
from obdsd.models import Embedder
from obdsd.training import RunRecord, build, train
from obdsd.training.run_folder import FORMAT
from tests.training.reading import lines, rewritten

ALL = {"weight": 100.0, "evaluate_every": 1, "test_every": 2, "val_fraction": 0.3, "reference": True, "label_noise": 0.2}


def test_what_a_run_leaves(finished, features):
    record = finished(**ALL)
    config = yaml.safe_load((record.folder / "config.yaml").read_text())
    assert (config["data"], config["label_noise"], config["seed"]) == (features, 0.2, 0)
    assert config["targets"] == str(record.options.targets) == "batch-diffusion(omega=0.3)"
    written = json.loads((record.folder / "result.json").read_text())
    test = open_data(features)["test"]
    rows = embed(record.model(), test)
    assert written["scores"] == evaluate(rows, np.asarray(test.class_names)[test.labels]).as_dict() == record.scores
    assert (record.epoch, record.last_epoch, record.chosen_by) == (1, 1, "last epoch")
    mean = np.average(record.per_class["recall@1"], weights=record.per_class["queries"])
    assert mean == pytest.approx(record.scores["recall@1"], abs=1e-5)
    first, second = lines(record.folder)
    assert "test" not in first
    assert second["test"] == {**record.scores, "nmi": None, "ami": None}
    assert second["loss"]["weight"] == 50.0  # half of the way to 100
    assert first["loss"]["distillation"] == 0
    frozen = evaluate(test.matrix(), test.labels, clusters=False)
    assert record.reference["frozen features"] == pytest.approx(frozen.as_dict())
    assert set(record.reference) == {"frozen features", "their PCA"}
    assert record.model().dim == 6
    assert torch.__version__.startswith(record.versions["torch"])
    assert (record.threads, record.processes, record.device) == (torch.get_num_threads(), 1, "cpu")
    assert record.data["test"]["items"] == len(test)
    assert record.rows() == {}  # rows of a file are embedded again in no time


def test_geometry_goes_by_the_true_labels_of_the_training_set(finished, features):
    record = finished(**ALL)  # a fifth of the labels that trained it are wrong
    part = open_data(features).hold_out(fraction=0.3, seed=0)["train"]
    rows = embed(record.model(), part)
    assert record.train["density"] == pytest.approx(density(rows, part.labels).ratio)
    assert record.train["spectral-decay"] == pytest.approx(spectral_decay(rows))


def test_the_reference_is_a_pca_of_the_training_features(finished, features):
    record = finished(**ALL)
    collection = open_data(features).hold_out(fraction=0.3, seed=0)

    def unit(part):
        rows = part.matrix()
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    pca = PCA(6, svd_solver="full").fit(unit(collection["train"]))
    expected = evaluate(pca.transform(unit(collection["test"])), collection["test"].labels, clusters=False)
    assert record.reference["their PCA"]["map@r"] == pytest.approx(expected["map@r"], abs=1e-6)


def test_images_keep_their_rows_and_the_reference_is_the_model_before_any_training(image_options, pictures, tmp_path):
    start = Embedder("tiny-conv", seed=5)
    torch.save(start.backbone.state_dict(), tmp_path / "start.pt")
    record = train(image_options("ms", pretrained=str(tmp_path / "start.pt"), epochs=1, lr=0.1, reference=True), show=False)
    test = open_data(pictures)["test"]
    plain = Embedder("tiny-conv", head="none", pretrained=str(tmp_path / "start.pt")).eval()
    test = test.replace(transform=evaluation_transform(plain.preprocessing))
    untrained = evaluate(embed(plain, test), test.labels, clusters=False)
    assert record.reference["frozen features at 32 px"]["recall@1"] == pytest.approx(untrained["recall@1"])
    kept = record.rows()
    assert set(kept) == {"train", "test"}
    np.testing.assert_allclose(kept["test"], embed(record.model(), test), atol=1e-5)
    (record.folder / "rows.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"rows.npz: is damaged \(.*\); remove it, and it is computed anew"):
        record.rows()


def test_the_best_epoch_is_chosen_by_held_out_classes_and_training_stops_without_improvement(finished):
    record = finished("ms", epochs=60, val_fraction=0.3, evaluate_every=1, patience=4, select="best", lr=0.02)
    recalls = [line["validation"]["recall@1"] for line in record.metrics]
    assert record.chosen_by == "best on held-out classes"
    assert record.epoch == int(np.argmax(recalls))
    assert len(recalls) == record.epoch + 1 + 4 < 60
    # the chosen epoch is an earlier one: all scores are those of its model
    assert record.validation == record.metrics[record.epoch]["validation"] != record.metrics[-1]["validation"]
    assert record.train == record.metrics[record.epoch]["train"] != record.metrics[-1]["train"]


def test_held_out_classes_of_ones_own(options, features, tmp_path):
    data = rewritten(features, tmp_path / "split.npz", split=np.repeat(["train", "val", "test"], [9 * 6, 5 * 6, 10 * 6]))
    chosen = options(data=data, epochs=1, select="best", evaluate_every=1)
    assert train(chosen, show=False).validation["queries"] == 5 * 6
    with pytest.raises(InputError, match=r"has held-out classes of its own \(val\); leave val_fraction and val_fold out"):
        train(chosen.replace(val_fraction=0.2, out=str(tmp_path / "other")), show=False)


NO_RECORD = [  # what is written into the folder of a finished run, or removed
    (
        {"run.json": None, "config.yaml": None},
        r"holds no run \(no config.yaml\), give the folder of a finished obdsd train",
    ),
    ({"result.json": None}, r"its training is not finished \(no result.json\), go on with it by obdsd train --resume"),
    ({"result.json": None, "failure.json": '{"fault": "not finite"}'}, r"its training failed \(not finite\), train it anew"),
    ({"run.json": '{"format": 99}'}, rf"is a run of another version of obdsd \(format 99, not {FORMAT}\); update obdsd"),
    ({"run.json": '{"format": 3}'}, rf"another version of obdsd \(format 3, not {FORMAT}\); use that version, or train again"),
    ({"run.json": "{}"}, rf"is a run of another version of obdsd \(format 1, not {FORMAT}\); use that version, or train again"),
    ({"per_class.json": '{"queries": [1], "labels": []}'}, r"its per_class are not what obdsd writes; restore them, or train it again"),
    ({"metrics.jsonl": '{"epoch": "last"}'}, r"its metrics are not what obdsd writes; restore them, or train it again"),
    ({"result.json": '{"sco'}, r"result.json: cannot be read \(.*\); mend or restore it"),
    ({"result.json": "[]"}, r"result.json: must hold named fields, .*; mend or restore it"),
    ({"result.json": '{"train": {}}'}, r"its result has no 'scores'; restore it, or train it again"),
    ({"per_class.json": '{"queries": []}'}, r"its result has no 'labels'; restore it, or train it again"),
    ({"per_class.json": None}, r"per_class.json: cannot be read"),
    ({"config.yaml": "data: x\nmomentous: 3\n"}, r"config.yaml: momentous=3 is no option here; did you mean momentum\?"),
    ({"config.yaml": "epochs: 3\n"}, r"config.yaml: .*missing .*required .*argument: 'data'"),
]


@pytest.mark.parametrize(("changes", "message"), NO_RECORD)
def test_what_is_no_finished_run_is_refused_in_one_line(finished, tmp_path, changes, message):
    copy = Path(shutil.copytree(finished("ms").folder, tmp_path / "copy"))
    for name, content in changes.items():
        (copy / name).unlink() if content is None else (copy / name).write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        RunRecord.read(copy)
    assert "\n" not in str(caught.value)
    assert str(copy) in str(caught.value)


@pytest.mark.usefixtures("as_shipped")
def test_a_record_of_other_types_is_refused(finished, tmp_path):
    copy = Path(shutil.copytree(finished("ms").folder, tmp_path / "copy"))
    result = json.loads((copy / "result.json").read_text())
    for name, value in (("scores", {"recall@1": "5e-05"}), ("epoch", 1.5), ("train", []), ("reference", {"x": 1}), ("seconds", True)):
        (copy / "result.json").write_text(json.dumps({**result, name: value}))
        with pytest.raises(InputError, match=f"copy: its {name} are not what obdsd writes; restore them, or train it again"):
            RunRecord.read(copy)


def test_small_numbers_and_odd_names_are_read_as_they_were_written(finished, tmp_path):
    """JSON is no YAML: there 5e-05 is a text, and U+0085 a blank."""
    copy = Path(shutil.copytree(finished("ms").folder, tmp_path / "copy"))
    for name, field, value in (("result.json", "seconds", 5e-05), ("per_class.json", "labels", ["a\x85b", "\u2028", "\udcff", "1e-7"])):
        content = json.loads((copy / name).read_text()) | {field: value}
        if name == "per_class.json":
            content = {each: values[:4] for each, values in content.items()}
        write_json(copy / name, content)
    record = RunRecord.read(copy)
    assert (record.seconds, record.per_class["labels"]) == (5e-05, ["a\x85b", "\u2028", "\udcff", "1e-7"])


def test_a_comparison_that_is_not_finished_and_a_folder_that_is_not_there_are_named(tmp_path):
    with pytest.raises(InputError, match="no such folder, give the folder of a finished"):
        RunRecord.read(tmp_path / "all")
    (tmp_path / "all" / "ms" / "seed-0").mkdir(parents=True)
    (tmp_path / "all" / "ms" / "seed-0" / "config.yaml").write_text("data: x\n")
    with pytest.raises(InputError, match=r"the comparison is not finished \(no comparison.json\), the same obdsd compare goes on with it"):
        RunRecord.read(tmp_path / "all")


def test_a_search_never_reads_a_test_class(options, monkeypatch):
    chosen = options(val_fraction=0.3, score="validation", evaluate_every=1, reference=True)
    collection = build.collection_of(chosen)
    test = collection["test"]
    spoilt = test.replace(items=Unreadable())
    monkeypatch.setattr(build, "collection_of", lambda *_: replace(collection, parts={**collection.parts, "test": spoilt}))
    record = train(chosen, show=False)
    assert json.loads((record.folder / "result.json").read_text())["scored"] == "validation"
    assert record.scores["recall@1"] == record.validation["recall@1"]
    assert set(record.reference) == {"frozen features", "their PCA"}
    assert set(record.per_class["labels"]) == set(collection["val"].class_names)


class Unreadable:
    def __len__(self):
        return 1

    def read(self, position):
        raise AssertionError("a test item was read")

    def name(self, position):
        return str(position)

    def content(self, position):
        return b""


@pytest.mark.parametrize("separate", [True, False])
def test_query_and_gallery(options, features, tmp_path, separate):
    """Classes are told apart by name: query and gallery number theirs differently."""
    with np.load(features) as file:
        rows, labels = file["embeddings"], file["labels"]
    split = np.where(labels < 12, "train", np.where((np.arange(len(labels)) % 6 < 2) & (labels != 20), "query", "gallery"))
    data = rewritten(features, tmp_path / "other.npz", split=split if separate else np.where(labels < 12, "train", "test"))
    record = train(options(epochs=1, data=data), show=False)
    with torch.no_grad():
        z = record.model()(torch.from_numpy(rows)).numpy()
    asks, asked = (split == "query", split == "gallery") if separate else (labels >= 12, labels >= 12)
    query = (z[asks], labels[asks]) if separate else None
    assert record.scores["recall@1"] == pytest.approx(evaluate(z[asked], labels[asked], query=query, clusters=False)["recall@1"])
    assert record.scores["queries"] == (11 * 2 if separate else 12 * 6)
