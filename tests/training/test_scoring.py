"""What is read when: a search of settings must not see the test classes."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from obdsd.evaluation import evaluate
from obdsd.training import build, train


def test_a_search_never_reads_a_test_class(options, monkeypatch):
    chosen = options(val_fraction=0.3, score="validation", evaluate_every=1, reference=True)
    collection = build.collection_of(chosen)
    test = collection["test"]
    spoilt = test.replace(items=Unreadable())
    monkeypatch.setattr(build, "collection_of", lambda _: replace(collection, parts={**collection.parts, "test": spoilt}))
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

    def stamp(self, positions):
        return b""


@pytest.mark.parametrize("separate", [True, False])
def test_query_and_gallery(options, features, tmp_path, separate):
    """Classes are told apart by name: query and gallery number theirs differently."""
    with np.load(features) as file:
        rows, labels = file["embeddings"], file["labels"]
    split = np.where(labels < 12, "train", np.where((np.arange(len(labels)) % 6 < 2) & (labels != 20), "query", "gallery"))
    path = tmp_path / "separate.npz"
    np.savez(path, embeddings=rows, labels=labels, split=split if separate else np.where(labels < 12, "train", "test"))
    record = train(options(epochs=1, data=str(path)), show=False)
    with torch.no_grad():
        z = record.model()(torch.from_numpy(rows)).numpy()
    asks, asked = (split == "query", split == "gallery") if separate else (labels >= 12, labels >= 12)
    query = (z[asks], labels[asks]) if separate else None
    assert record.scores["recall@1"] == pytest.approx(evaluate(z[asked], labels[asked], query=query, clusters=False)["recall@1"])
    assert record.scores["queries"] == (11 * 2 if separate else 12 * 6)
