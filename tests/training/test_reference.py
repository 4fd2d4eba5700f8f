"""What was there before a training is computed once for all runs that begin with it."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import obdsd.catalogue
from obdsd.training import Trainer, build, train


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The files of an empty cache, where no other test has registered parts from outside."""
    monkeypatch.setenv("OBDSD_CACHE", str(tmp_path / "kept"))
    others = {*obdsd.catalogue.OUTSIDE}
    obdsd.catalogue.OUTSIDE.clear()
    yield lambda: sorted((tmp_path / "kept" / "computed").glob("*.npz"))
    obdsd.catalogue.OUTSIDE.update(others)


def reference_of(chosen):
    return json.loads((Path(train(chosen, show=False).folder) / "reference.json").read_text())


def test_the_second_run_reads_what_the_first_computed(options, kept, tmp_path):
    first = reference_of(options(reference=True, epochs=1))
    (file,) = kept()
    altered = {name: {**scores, "recall@1": 0.125} for name, scores in first.items()}
    np.savez(file, scores=np.array(json.dumps(altered)))
    assert reference_of(options("ms", reference=True, epochs=2, seed=3, out=str(tmp_path / "second"))) == altered
    assert kept() == [file]
    np.savez(file, scores=np.array(json.dumps(first)))
    assert reference_of(options(reference=True, epochs=1, out=str(tmp_path / "third"))) == first


def scoring_of(chosen):
    return Trainer(chosen, build.collection_of(chosen)).scoring


def test_other_data_lengths_and_depths_are_other_references(options, kept):
    chosen = options()
    for number, other in enumerate([{}, {"dim": 5}, {"ks": (1, 3)}, {"split_seed": 2}, {"seed": 9}], start=1):
        scoring = scoring_of(chosen.replace(**other))
        assert scoring.reference() == scoring.reference_anew()
        assert len(kept()) == min(number, 4)  # the seed of a training is no part of what was there before


def test_of_images_the_features_are_kept_too(image_options, kept):
    chosen = image_options(head_init="projection", dim=4)
    first = scoring_of(chosen)
    projection, reference = first.projection(), first.reference()
    features, scores = sorted(kept(), key=os.path.getsize, reverse=True)
    with np.load(features) as file:
        np.savez(features, rows=np.roll(file["rows"], 1, axis=1))  # the same cosines, other directions
    scores.unlink()
    again = scoring_of(chosen)
    np.testing.assert_allclose(abs(again.projection()), abs(np.roll(projection, 1, axis=1)), atol=1e-4)
    assert {name: own["map@r"] for name, own in again.reference().items()} == pytest.approx(
        {name: own["map@r"] for name, own in reference.items()}
    )
    assert len(scoring_of(chosen.replace(seed=1)).projection()) == 4
    assert len(kept()) == 3  # another network has other features


def test_with_parts_from_outside_it_is_computed_each_time(options, kept):
    obdsd.catalogue.OUTSIDE.add("their.metrics")
    try:
        assert scoring_of(options()).reference().keys() == {"frozen features", "their PCA"}
    finally:
        obdsd.catalogue.OUTSIDE.discard("their.metrics")
    assert kept() == []
