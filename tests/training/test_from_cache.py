"""A training from decoded images: the same bits as from the files, however it is stopped and shared."""

import re
import signal
from functools import partial

import numpy as np
import pytest

from obdsd.data.decoded import Reduced
from obdsd.errors import InputError
from obdsd.training import Trainer, scoring, train
from tests.faulty import full_disk, killed_at
from tests.training.reading import assert_same_end, trainer_of
from tests.training.starting import run_command

IMAGES = {"backbone": "tiny-conv", "batch_size": 8, "head": "linear", "workers": 0, "crop": 0.5, "pretrained": "none"}


def kept(folder):
    return [path.name for path in folder.iterdir() if path.suffix == ".images"]


@pytest.mark.parametrize("changes", [{}, {"micro_batch": 3, "batchnorm": "frozen"}, {"workers": 1}], ids=str)
def test_a_training_from_a_cache_that_reduces_nothing_is_that_from_the_files(image_options, tmp_path, changes):
    files = train(image_options(**changes, out=str(tmp_path / "files")), show=False)
    cache = image_options(**changes, out=str(tmp_path / "run"), cache=str(tmp_path / "kept"), cache_side=32)
    assert_same_end(files.folder, train(cache, show=False).folder)
    assert re.fullmatch(r"pictures\d-32-\w{8}\.images", "".join(kept(tmp_path / "kept")))


def test_reduced_images_give_the_same_run_with_a_cache_and_without(image_options, tmp_path):
    small = {"cache_side": 20, "epochs": 1}
    files = train(image_options(**small, out=str(tmp_path / "files")), show=False)
    cache = train(image_options(**small, out=str(tmp_path / "cache"), cache=str(tmp_path / "kept")), show=False)
    assert_same_end(files.folder, cache.folder)
    whole = train(image_options(epochs=1, out=str(tmp_path / "whole")), show=False)
    assert whole.metrics[0]["loss"] != files.metrics[0]["loss"]  # crops of smaller images are others


def test_by_default_it_keeps_what_an_evaluation_takes_and_scores_are_those_of_the_files(image_options, tmp_path):
    files, cache = trainer_of(image_options(size=24)), trainer_of(image_options(size=24, cache=str(tmp_path / "kept")))
    assert files.options.cache_side is None
    assert cache.options.cache_side == cache.model.preprocessing.resize == 24
    assert isinstance(cache.part.items, Reduced)
    assert cache.part[0][0].pixels.shape == (3, 24, 24)
    assert re.match(rf"{re.escape(str(tmp_path))}/kept/pictures\d-24-", cache.remark)
    assert cache.options.replace(cache=None).identity() == cache.options.identity()  # where it lies changes no number
    rows = [trainer.scoring.rows_of(trainer.model, trainer.collection["test"]) for trainer in (files, cache)]
    assert np.array_equal(*rows)


@pytest.mark.parametrize(("began", "goes_on"), [("kept", None), (None, "kept"), ("kept", "kept")])
def test_a_run_goes_on_with_the_side_that_it_began_with(broken_off, options, pictures, tmp_path, began, goes_on):
    """Also where only one of the two has a cache: it keeps, or leaves, what the run began with."""
    began, goes_on = (name and str(tmp_path / name) for name in (began, goes_on))
    how = {"data": pictures, **IMAGES, "size": 24, "cache": began}
    whole = train(options(**how, out=str(tmp_path / "whole")), show=False)
    stopped = broken_off(Trainer, "step", 3, **how).replace(cache=goes_on)
    with pytest.raises(InputError, match=f"cache_side=20 differs from {24 if began else 0} that the run in"):
        train(stopped.replace(cache_side=20), show=False)
    assert_same_end(whole.folder, train(stopped, show=False).folder)


def test_killed_while_the_cache_is_built_and_on_a_full_disk(pictures, tmp_path):
    """Nothing half-made is left, and the same command then comes to the end of one that was left alone."""
    words = f"train {pictures} --preset ms --backbone tiny-conv --pretrained none --batch-size 8 --epochs 1 --dim 6 --workers 0 --no-report"
    words = f"{words} --device cpu --resume --cache".split()
    code, said = run_command([*words, "kept", "--out", "run"], tmp_path, partial(full_disk, 100_000))
    assert code == 2
    assert re.fullmatch(
        r"(?s).*obdsd: [^\n]*\.images: cannot be written \(File too large\); make room or choose another place[^\n]*\n", said
    )
    assert kept(tmp_path / "kept") == []
    code, _ = run_command([*words, "kept", "--out", "run"], tmp_path, partial(killed_at, "obdsd.data.decoded:Reduced.decoded", 40))
    assert code == -signal.SIGKILL
    assert kept(tmp_path / "kept") == []
    assert any(".obdsd-" in path.name for path in (tmp_path / "kept").iterdir())
    code, said = run_command([*words, "kept", "--out", "run"], tmp_path)
    assert code == 0, said
    assert len(kept(tmp_path / "kept")) == 1
    assert not any(".obdsd-" in path.name for path in (tmp_path / "kept").iterdir())  # what the kill left
    assert "48 images with a shorter side of at most 32, 0 MiB\n" in said
    assert run_command([*words, "other", "--out", "alone"], tmp_path)[0] == 0
    assert_same_end(tmp_path / "run", tmp_path / "alone")


def test_what_has_no_image_files_has_no_cache(image_options, tmp_path):
    with pytest.raises(InputError, match=r"cache=.*kept is for image files below one folder, glyphs is something else; leave it out"):
        trainer_of(image_options(data="glyphs", cache=str(tmp_path / "kept")))


def test_an_evaluation_takes_as_many_at_once_as_asked_for(image_options, monkeypatch):
    seen, embed = [], scoring.embed
    monkeypatch.setattr(scoring, "embed", lambda *given, **named: seen.append(named["batch_size"]) or embed(*given, **named))
    for number in (64, 5):
        trainer_of(image_options(eval_batch_size=number)).scoring.geometry()
    assert seen == [64, 5]
