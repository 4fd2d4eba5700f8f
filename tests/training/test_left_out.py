"""Images that cannot be read and vectors without a direction: named all at once before a training, or left out of all that it does."""

import json
import shutil

import numpy as np
import pytest

from obdsd.data import open_data
from obdsd.data.check import check_trainable
from obdsd.data.unusable import check_readable, unreadable
from obdsd.errors import FinishedError, InputError
from obdsd.report.opening import open_collection
from obdsd.training import RunRecord, train
from obdsd.training.verifying import verify_run
from tests.data.trees import refused


@pytest.fixture
def spoilt(pictures, tmp_path):
    """A copy of the pictures: one is no image, one is cut off, one class has a single image left."""
    folder = shutil.copytree(pictures.removeprefix("folder:"), tmp_path / "photos")
    (folder / "c0/1.png").write_bytes(b"no image")
    (folder / "c5/3.png").write_bytes((folder / "c5/3.png").read_bytes()[:700])
    return folder


def fingerprints(collection):
    return {name: part.fingerprint() for name, part in collection.parts.items()}


def test_all_are_named_before_a_training_begins(spoilt, image_options, tmp_path):
    chosen = image_options(data=f"folder:{spoilt}")
    with refused(
        f"{spoilt}: 2 of 48 images cannot be read: ", "; replace or remove them, or leave them out with --skip-unreadable; the first"
    ):
        train(chosen, show=False)
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError) as refusal:
        train(chosen, show=False)
    assert "c0/1.png" in str(refusal.value)
    assert "c5/3.png" in str(refusal.value)


def test_what_a_search_never_reads_does_not_matter(spoilt, image_options):
    held = open_data(f"folder:{spoilt}")["test"].class_names
    for name in {"c0", "c5"} - set(held):
        (spoilt / name / {"c0": "1.png", "c5": "3.png"}[name]).unlink()
    (spoilt / held[0] / "0.png").write_bytes(b"no image")
    chosen = image_options(data=f"folder:{spoilt}", epochs=1, score="validation", val_fraction=0.5, batch_size=6)
    assert train(chosen, show=False).scores["recall@1"] is not None
    with refused(f"{held[0]}/0.png", "cannot be read"):
        train(chosen.replace(score="test", out=f"{chosen.out}-2"), show=False)


def test_what_is_left_out_is_left_out_of_resume_verify_and_report(spoilt, image_options, tmp_path, capsys):
    chosen = image_options(data=f"folder:{spoilt}", epochs=1, skip_unreadable=True)
    shutil.copy(spoilt / "c0/0.png", spoilt / "loose.png")
    (spoilt / "drawing.svg").touch()
    record = train(chosen)
    told = capsys.readouterr().err
    assert f"{spoilt}: 2 of 48 images are left out, as they cannot be read: " in told
    assert f"{spoilt}: 1 image beside the class folders is left out: loose.png\n" in told
    assert f"{spoilt}: 1 .svg is not read; formats are .jpg, " in told
    begun = json.loads((tmp_path / "run" / "run.json").read_text())
    assert sorted(name for names in begun["left_out"].values() for name in names) == ["c0/1.png", "c5/3.png"]
    assert sum(part["items"] for part in begun["data"].values()) == 46
    with pytest.raises(FinishedError):
        train(chosen.replace(resume=True), show=False)
    assert [check.differences for check in verify_run(tmp_path / "run", device="cpu")] == [[]] * 5
    assert RunRecord.read(tmp_path / "run").options.skip_unreadable
    shown = open_collection(record)
    (spoilt / "c0/1.png").unlink()  # what was left out may go; the data are the same
    assert fingerprints(open_collection(record)) == fingerprints(shown)
    shutil.copy(spoilt / "c0/2.png", spoilt / "c0/1.png")  # one more that can be used: other data
    with refused("changed since the run in"):
        open_collection(record)


def test_vectors_without_a_direction_are_left_out(features, options, tmp_path, capsys):
    with np.load(features) as file:
        rows, labels = file["embeddings"], file["labels"]
    rows[3, 1], rows[9], rows[100, 0] = np.nan, 0, np.inf
    np.savez(tmp_path / "x.npz", embeddings=rows, labels=labels)
    line = "3 of 144 vectors hold NaN or infinity, or only zeros: row 3, row 9, row 100; recompute or remove them, or leave them out with"
    with pytest.raises(InputError, match="3 of 144 vectors") as refusal:
        train(options(data=str(tmp_path / "x.npz")), show=False)
    names = str(refusal.value).partition("zeros: ")[2].partition(";")[0]
    assert {*names.split(", ")} == {"row 3", "row 9", "row 100"}
    assert str(refusal.value).replace(names, "row 3, row 9, row 100") == f"{tmp_path / 'x.npz'}: {line} --drop-nan"
    train(options(data=str(tmp_path / "x.npz"), epochs=1, drop_nan=True))
    assert "3 of 144 embeddings are left out, as they hold NaN or infinity, or only zeros: " in capsys.readouterr().err
    assert all(not check.differences for check in verify_run(tmp_path / "run", device="cpu"))


def test_a_class_and_a_part_of_which_nothing_is_left_go(spoilt):
    for image in (spoilt / "c7").iterdir():
        image.write_bytes(b"")
    left = open_data(f"folder:{spoilt}", skip_unreadable=True)
    assert sorted(name for part in left.parts.values() for name in part.class_names) == sorted({f"c{i}" for i in range(12)} - {"c7"})
    assert all(set(part.labels.tolist()) == set(range(len(part.class_names))) for part in left.parts.values())
    check_trainable(left)
    check_readable(left)
    lines = [
        f"{image.relative_to(spoilt)},{image.parent.name},{'train' if image.parent.name < 'c5' else 'query'}"
        for image in spoilt.glob("c*/*")
    ]
    (spoilt / "list.csv").write_text(
        "\n".join(["path,label,split", *lines, *[f"c7/{i}.png,c7,gallery" for i in range(4)], "gone.png,x,test"])
    )
    found = open_data(f"manifest:{spoilt / 'list.csv'}", skip_unreadable=True)
    assert list(found.parts) == ["train", "query"]  # nothing is left of gallery and test
    assert found.left_out["test"] == ["gone.png"]
    for image in spoilt.glob("c*/*"):
        image.write_bytes(b"")
    with refused("no item can be used (c", "); check the path"):
        open_data(f"folder:{spoilt}", skip_unreadable=True)


def test_query_and_gallery_keep_one_numbering(spoilt):
    """Also where a class is gone from one of them."""
    split = {"c0": "query", "c1": "query", "c2": "query"}
    lines = [f"{c}/{i}.png,{c},{split[c] if i < 2 else 'gallery'}" for c in split for i in range(4)]
    (spoilt / "list.csv").write_text("\n".join(["path,label,split", *lines]))
    for i in range(2):
        (spoilt / f"c1/{i}.png").write_bytes(b"")
    found = open_data(f"manifest:{spoilt / 'list.csv'}", skip_unreadable=True)
    assert found["query"].class_names == found["gallery"].class_names == ("c0", "c1", "c2")
    assert found["query"].classes.tolist() == ["c0", "c2", "c2"]


def test_what_took_long_to_find_out_is_kept(spoilt, tmp_path, monkeypatch):
    monkeypatch.delenv("OBDSD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("obdsd.data.unusable.WORTH", 0.0)
    told = []

    def faults():
        found = unreadable(open_data(f"folder:{spoilt}"), lambda *stage: told.append(stage))
        return sorted(reason for part in found.values() for reason in part.values())

    first = faults()
    assert [reason.split(": ")[0] for reason in first] == [f"{spoilt}/c0/1.png", f"{spoilt}/c5/3.png"]
    assert told[-1] == ("reading images", 48, 48)
    told.clear()
    assert (faults(), told) == (first, [("reading images", 2, 2)])  # no other was read again
    moved = spoilt.rename(tmp_path / "elsewhere")
    reasons = unreadable(open_data(f"folder:{moved}"), lambda *stage: None)
    assert all(reason.startswith(f"{moved}/c") for part in reasons.values() for reason in part.values())
    moved.rename(spoilt)
    (kept,) = (tmp_path / "cache").rglob("*.json")
    kept.write_text("spoilt")
    assert (faults(), len(told) > 0) == (first, True)
    (spoilt / "c0/1.png").write_bytes((spoilt / "c0/2.png").read_bytes())  # other content: all is read anew
    assert len(faults()) == 1
