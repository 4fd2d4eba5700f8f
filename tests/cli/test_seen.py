"""What a model was trained on goes where it goes: its scores are those of new classes, or somebody is told."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from obdsd.data import open_data
from obdsd.data.check import check_unseen
from obdsd.models import Embedder
from tests.cli.conftest import SMALL


def again(path):
    Embedder.load(path / "model").save(path.parent / "again")
    return path.parent / "again"


def linked(path, target):
    if not path.exists():
        path.symlink_to(target)
    return path


WAYS = {
    "run": lambda run: run,
    "model": lambda run: run / "model",
    "copy": lambda run: shutil.copytree(run / "model", run.parent / "published", dirs_exist_ok=True),
    "link to the run": lambda run: linked(run.parent / "best", run),
    "link to the model": lambda run: linked(run.parent / "best-model", run / "model"),
    "saved again": again,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_is_scored_on_the_same_classes_however_it_is_named(obdsd, trained, rows, tmp_path, way):
    code, _, told = obdsd("evaluate", WAYS[way](trained.folder), rows, "--out", tmp_path / "s.json")
    expected = json.loads((trained.folder / "result.json").read_text())["scores"]
    assert code == 0
    assert "model=" not in told
    assert json.loads((tmp_path / "s.json").read_text())["scores"] == pytest.approx(expected)


@pytest.fixture
def written(trained, rows, tmp_path):
    """`written(part, labels, change)`: a file whose test part is made of a part of the run's data, other items training."""
    collection = open_data(rows, seed=7, test_fraction=0.4)
    rng = np.random.default_rng(0)

    def write(part, label=lambda name: f"new {name}", change=0.0):
        items = collection[part]
        x = np.concatenate([items.matrix() + np.float32(change), rng.normal(size=(8, 12)).astype(np.float32)])
        labels = [*map(label, items.classes), *(["one"] * 4), *(["two"] * 4)]
        np.savez(tmp_path / "x.npz", x=x, y=labels, split=["test"] * len(items) + ["train"] * 8)
        return tmp_path / "x.npz"

    return write


def test_items_that_trained_the_model_are_refused_under_any_name(refused, obdsd, trained, written, tmp_path):
    model = shutil.copytree(trained.folder / "model", tmp_path / "published")
    file = written("train")
    line = f"MODEL {model}: was trained on 72 of the 72 items of test, such as 'row "
    for command in (["evaluate", model, file], ["embed", model, file, "--out", tmp_path / "z.npz"]):
        told = refused(*command)
        assert told.startswith(line)
        assert told.endswith("'; give items that it has not seen, or mark these as train")
        assert obdsd(*command, "--part", "train", *(["--ks", "1"] * (command[0] == "evaluate")))[0] == 0


def test_classes_of_the_same_name_are_told(obdsd, trained, written):
    code, printed, told = obdsd("evaluate", trained.folder, written("train", str, change=1.0))
    line = f"obdsd: model={trained.folder}: 12 of the 12 classes of test have names of its training classes and may not be new to it\n"
    assert (code, line in told) == (0, True)
    assert "Recall@1" in printed
    code, _, told = obdsd("evaluate", trained.folder, written("test"))
    assert (code, "model=" in told) == (0, False)


def test_held_out_items_are_told(obdsd, rows, written, tmp_path):
    run = tmp_path / "run"
    split = ["--split-seed", "7", "--test-fraction", "0.4", "--val-fraction", "0.5"]
    assert obdsd("train", rows, "--out", run, *SMALL, *split)[0] == 0
    held = open_data(rows, seed=7, test_fraction=0.4).hold_out(fraction=0.5, seed=7)["val"]
    np.savez(
        tmp_path / "y.npz",
        x=np.concatenate([held.matrix()] * 2),
        y=[*held.classes, *["a"] * 18, *["b"] * 18],
        split=["test"] * 36 + ["train"] * 36,
    )
    code, _, told = obdsd("evaluate", run, tmp_path / "y.npz")
    line = "36 of the 36 items of test were held out in its training and may have chosen its epoch\n"
    assert (code, told.count("model="), line in told) == (0, 1, True)


def test_a_file_of_embeddings_tells_what_its_model_has_seen(obdsd, trained, rows, tmp_path):
    """Where its training classes are scored again."""
    assert obdsd("embed", trained.folder, rows, "--out", tmp_path / "all.npz")[0] == 0
    assert "model=" not in obdsd("evaluate", tmp_path / "all.npz")[2]
    code, _, told = obdsd("evaluate", tmp_path / "all.npz", "--merge")
    line = f"model={tmp_path / 'all.npz'}: 12 of the 20 classes of test have names of its training classes and may not be new to it\n"
    assert (code, line in told) == (0, True)


def test_of_a_model_that_does_not_say_which_items_trained_it_it_is_told(trained, rows):
    """An earlier version knew image files by samples of their bytes, which cannot be compared."""
    seen = Embedder.load(trained.folder / "model").trained_on
    remark, *_ = check_unseen("m", replace(seen, items={}, parts={}), {"test": open_data(rows, seed=seen.split_seed)["test"]})
    assert remark == "model=m: it does not say which items trained it, as an earlier version saved it; items of test may be among them"


def test_a_copy_across_the_line_is_no_reason_to_refuse_its_own_test(obdsd, rows, tmp_path):
    """`obdsd data check` names it; the training has scored it so."""
    with np.load(rows) as file:
        x, y = file["embeddings"], file["labels"]
    x[-1] = x[0]
    np.savez(tmp_path / "x.npz", x=x, y=y, split=np.where(y < 10, "train", "test"))
    assert obdsd("train", tmp_path / "x.npz", "--out", tmp_path / "run", *SMALL)[0] == 0
    assert obdsd("evaluate", tmp_path / "run", tmp_path / "x.npz")[0] == 0
    assert obdsd("report", tmp_path / "run", "--out", tmp_path / "r.html")[0] == 0
    x[-2] = 1  # now it is another test part
    np.savez(tmp_path / "y.npz", x=x, y=y, split=np.where(y < 10, "train", "test"))
    assert obdsd("evaluate", tmp_path / "run", tmp_path / "y.npz")[0] == 2


def test_a_report_shows_no_other_model_than_the_runs(obdsd, refused, trained, rows, tmp_path):
    run, other = shutil.copytree(trained.folder, tmp_path / "run"), tmp_path / "other"
    assert obdsd("train", rows, "--out", other, *SMALL)[0] == 0
    shutil.rmtree(run / "model")
    shutil.copytree(other / "model", run / "model")
    line = refused("report", run, "--out", tmp_path / "r.html")
    assert line == f"{run / 'model'}: was trained on other data than the run that it lies in; restore it"


def test_a_teacher_must_not_have_seen_what_is_scored(obdsd, refused, trained, rows, tmp_path):
    teacher = ["--teacher", f"frozen({trained.folder})", *SMALL]
    line = refused("train", rows, "--out", tmp_path / "a", *teacher)  # other classes test
    assert line.startswith(f"model=frozen(source={trained.folder}): was trained on")
    assert not (tmp_path / "a").exists()
    assert obdsd("train", rows, "--out", tmp_path / "b", *teacher, "--split-seed", 7, "--test-fraction", 0.4)[0] == 0


def test_a_file_of_embeddings_must_not_come_from_a_model_that_has_seen_what_is_scored(obdsd, refused, trained, rows, tmp_path):
    """`obdsd embed` writes down what its model was trained on. Of other files nobody knows, and that is told."""
    for name in ("z.npz", "z.parquet"):
        assert obdsd("embed", trained.folder, rows, "--out", tmp_path / name)[0] == 0
        teacher = ["--teacher", f"embeddings({tmp_path / name})", *SMALL]
        line = refused("train", rows, "--out", tmp_path / "a", *teacher)  # other classes test
        assert line.startswith(f"model=embeddings(file={tmp_path / name}): was trained on")
        assert not (tmp_path / "a").exists()
    own = ["--split-seed", 7, "--test-fraction", 0.4]
    unknown = "its file does not say what its model was trained on; if on what is scored, the scores owe to that"
    code, _, told = obdsd("train", rows, "--out", tmp_path / "b", *teacher, *own)
    assert (code, unknown in told) == (0, False)
    with np.load(tmp_path / "z.npz") as file:
        np.savez(tmp_path / "z.npz", embeddings=file["embeddings"], names=file["names"])
    code, _, told = obdsd("train", rows, "--out", tmp_path / "c", "--teacher", f"embeddings({tmp_path / 'z.npz'})", *SMALL)
    assert (code, f"teacher=embeddings(file={tmp_path / 'z.npz'}): {unknown}" in told) == (0, True)


@pytest.mark.parametrize("teacher", ["frozen({run})", "embeddings({file})"])
def test_a_student_has_seen_what_its_teacher_saw(obdsd, refused, trained, rows, written, tmp_path, teacher):
    """Nothing of its own data is scored, but its teacher knew the answers."""
    assert obdsd("embed", trained.folder, rows, "--out", tmp_path / "z.npz")[0] == 0
    with np.load(rows) as file:
        np.savez(tmp_path / "own.npz", embeddings=file["embeddings"] + np.float32(3), labels=[f"own {label}" for label in file["labels"]])
    own, by = tmp_path / "own.npz", teacher.format(run=trained.folder, file=tmp_path / "z.npz")
    assert obdsd("train", own, "--out", tmp_path / "student", "--preset", "ms+psd", "--teacher", by, *SMALL)[0] == 0
    line = refused("evaluate", tmp_path / "student", written("train"))
    assert line.startswith(f"MODEL {tmp_path / 'student'}: was trained on 72 of the 72 items of test, such as 'row ")
    for unseen in (own, written("test")):
        assert obdsd("evaluate", tmp_path / "student", unseen)[0] == 0


def test_a_model_to_begin_with_must_not_have_seen_what_is_scored(obdsd, refused, made, tmp_path):
    data = shutil.copytree(made, tmp_path / "data")
    text = (data / "list.csv").read_text()
    (data / "swapped.csv").write_text(text.replace(",train,", ",test,").replace(",query,", ",train,").replace(",gallery,", ",train,"))
    small = ["--preset", "ms", "--backbone", "tiny-conv", *SMALL, "--epochs", 1, "--batch-size", 4]
    assert obdsd("train", f"manifest:{data / 'list.csv'}", "--out", tmp_path / "a", *small)[0] == 0
    begun = [*small, "--pretrained", tmp_path / "a"]
    line = refused("train", f"manifest:{data / 'swapped.csv'}", "--out", tmp_path / "b", *begun)
    assert line.startswith(f"model={tmp_path / 'a'}: was trained on 16 of the 16 items of test")
    assert obdsd("train", f"manifest:{data / 'list.csv'}", "--out", tmp_path / "c", *begun)[0] == 0
