"""Small pictures, rows that a run kept, and crops that search for the whole."""

import io
import shutil

import numpy as np
import pytest
from PIL import Image

from obdsd import cli
from obdsd.data import open_data
from obdsd.data.transforms import evaluation_transform
from obdsd.errors import InputError
from obdsd.evaluation.embedding import embed
from obdsd.models import Embedder
from obdsd.report import gather, views
from obdsd.report.views import Crops, thumbnail
from tests.report.conftest import quick_run


def test_rows_of_a_file_have_no_pictures(content):
    assert set(content.pictures) == {None}
    assert len(content.local_queries) == len(content.local_pictures) == 0
    assert all(run.local is None and run.local_recall is None for run in content.runs)
    assert content.names[0].startswith("row ")


def test_rows_may_borrow_the_pictures_of_what_they_were_made_of(photographs, pictured, tmp_path):
    collection = open_data(f"folder:{photographs / 'images'}")
    names = np.array([part.name(i) for part in collection.parts.values() for i in range(len(part))])
    labels = np.concatenate([part.classes for part in collection.parts.values()])
    splits = np.repeat(list(collection.parts), [len(part) for part in collection.parts.values()])
    generator, file = np.random.default_rng(0), tmp_path / "x.npz"
    order, rows = generator.permutation(len(names)), generator.standard_normal((len(names), 9)).astype(np.float32)
    np.savez(file, embeddings=rows, labels=labels[order], split=splits[order], names=names[order])
    run = quick_run("ms", file, tmp_path / "run", batch_size=8, epochs=1)
    found = gather([run], pictures=f"folder:{photographs / 'images'}", device="cpu")
    assert dict(zip(found.names, found.pictures, strict=True)) == dict(zip(pictured.names, pictured.pictures, strict=True))
    assert found.runs[0].local is None
    assert found.facts["pictures"] == f"24 of 24 items have a picture of their name in folder:{photographs / 'images'}"
    with pytest.raises(InputError, match=r"pictures=glyphs: has no item of the name 'class .*'; give the images that were embedded"):
        gather([run], pictures="glyphs", device="cpu")
    with pytest.raises(InputError, match=r"pictures=.*x.npz: holds embeddings, no images; give the images that were embedded"):
        gather([run], pictures=str(file), device="cpu")


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_rows_remember_the_pictures_that_they_were_made_of(photographs, pictured, tmp_path, monkeypatch, capsys, suffix):
    """Also rows that were made of such rows; and the page is made all the same if the pictures are gone."""
    shutil.copytree(photographs / "images", tmp_path / "images")
    monkeypatch.chdir(tmp_path)
    Embedder("tiny-conv", dim=9).save(tmp_path / "tiny")
    Embedder("features", features=9, dim=8).save(tmp_path / "head")
    for words in (["tiny", "folder:images", "--out", f"x.{suffix}"], ["head", f"x.{suffix}", "--out", f"z.{suffix}"]):
        assert cli.main(["embed", *words, "--workers", "0"]) == 0
    run = quick_run("ms", tmp_path / f"z.{suffix}", tmp_path / "run", batch_size=8, epochs=1, dim=5)
    monkeypatch.chdir("/")
    found = gather([run], device="cpu")
    assert dict(zip(found.names, found.pictures, strict=True)) == dict(zip(pictured.names, pictured.pictures, strict=True))
    where = f"folder:{tmp_path / 'images'}"
    (tmp_path / "images" / found.names[0]).write_bytes(b"no image")
    (tmp_path / "images" / found.names[1]).unlink()
    capsys.readouterr()
    assert cli.main(["report", str(run), "--out", str(tmp_path / "page.html"), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"pictures: 22 of 24 items have a picture of their name in {where}"
    shutil.rmtree(tmp_path / "images")
    gone = gather([run], device="cpu")
    assert set(gone.pictures) == {None}
    assert gone.facts["pictures"].startswith(
        f"none, the images that were embedded are not there any more ({tmp_path / 'images'}: no such folder"
    )
    with pytest.raises(InputError, match="images: no such folder"):
        gather([run], pictures=where, device="cpu")


def test_pictures_are_small_and_show_the_item(photographs, pictured):
    part = open_data(f"folder:{photographs / 'images'}")["test"]
    for index, picture in enumerate(pictured.pictures):
        shown = Image.open(io.BytesIO(picture))
        assert (shown.format, shown.size) == ("WEBP", (56, 45))
        assert len(picture) < 3000  # noise compresses badly
        original = part[index][0].resize((56, 45), Image.Resampling.BOX)
        assert np.abs(np.asarray(shown.convert("RGB"), float).mean(axis=(0, 1)) - np.asarray(original, float).mean(axis=(0, 1))).max() < 10
    tiny = Image.new("RGB", (20, 9), "red")
    assert Image.open(io.BytesIO(thumbnail(tiny))).size == (20, 9)
    assert Image.open(io.BytesIO(thumbnail(Image.new("RGB", (900, 2))))).size == (56, 1)


def test_rows_that_a_run_kept_are_not_computed_again(photographs, pictured, tmp_path):
    shutil.copytree(photographs / "run", tmp_path / "run")
    kept = tmp_path / "run" / "rows.npz"
    collection = open_data(f"folder:{photographs / 'images'}")
    model = Embedder.load(tmp_path / "run" / "model")
    with np.load(kept) as file:
        assert sorted(file.files) == ["test", "train"]
        for name in file.files:
            part = collection[name].replace(transform=evaluation_transform(model.preprocessing))
            np.testing.assert_allclose(file[name], embed(model, part), atol=1e-6)
        turned = {name: file[name][:, ::-1] for name in file.files}  # the same cosines, and a trace of where they come from
        changed = {**turned, "test": np.roll(turned["test"], 1, axis=0)}
    kept.unlink()
    anew = gather([tmp_path / "run"], device="cpu")
    np.testing.assert_array_equal(anew.runs[0].neighbours.indices, pictured.runs[0].neighbours.indices)
    np.savez(kept, **changed)
    rolled = gather([tmp_path / "run"], device="cpu").runs[0]
    expected = np.roll((pictured.runs[0].neighbours.indices + 1) % len(pictured.names), 1, axis=0)
    assert (rolled.neighbours.indices == expected).mean() > 0.95


def test_progress_is_told_after_each_batch_of_what_is_left_to_do(photographs, pictured, tmp_path, monkeypatch):
    """Of two runs one kept its rows: 24 test and 24 training items of the other are embedded, and 24 crops for both."""
    without = shutil.copytree(photographs / "run", tmp_path / "run")
    (without / "rows.npz").unlink()
    monkeypatch.setattr(views, "BATCH", 8)
    told = []
    content = gather([photographs / "run", without], device="cpu", show=lambda *words: told.append(words))
    for stage, models, total in (("pictures for the page", 1, 24 + 24), ("embedding for the page", 2, 24 + 24 + 2 * 24)):
        done = [done for name, done, _ in told if name == stage]
        assert {whole for name, _, whole in told if name == stage} == {total}
        assert (done[0], done[-1]) == (0, total)
        assert max(np.diff(done)) <= 8 * models
    for run in content.runs:
        np.testing.assert_array_equal(run.local.indices, pictured.runs[0].local.indices)


def test_a_crop_searches_for_the_whole_but_never_finds_its_own_image(photographs, pictured):
    run = pictured.runs[0]
    np.testing.assert_array_equal(pictured.local_queries, np.arange(len(pictured.names)))
    labels = pictured.labels
    assert not (run.local.indices == pictured.local_queries[:, None]).any()
    assert run.local_recall == pytest.approx((labels[run.local.indices[:, 0]] == labels).mean())
    assert all(Image.open(io.BytesIO(picture)).size == (56, 45) for picture in pictured.local_pictures)
    part = open_data(f"folder:{photographs / 'images'}")["test"]
    crop, again, other = (np.asarray(Crops(**vars(part), seed=seed)[3][0]) for seed in (0, 0, 1))
    np.testing.assert_array_equal(crop, again)
    assert crop.shape == (48, 60, 3)
    whole = np.asarray(part[3][0])
    places = [(y, x) for y in range(49) for x in range(61) if np.array_equal(whole[y : y + 48, x : x + 60], crop)]
    assert len(places) == 1
    assert not np.array_equal(crop, other)
