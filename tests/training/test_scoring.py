"""What is read when: a search of settings must not see the test classes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd.evaluation import evaluate
from obdsd.models import Embedder
from obdsd.training import loop, train


def test_a_search_never_reads_a_test_class(options, monkeypatch):
    chosen = options(val_fraction=0.3, score="validation", evaluate_every=1, reference=True)
    collection = loop.assembly.collection_of(chosen)
    test = collection["test"]
    spoilt = test.replace(items=Unreadable())
    monkeypatch.setattr(
        loop.assembly, "collection_of", lambda _: type(collection)(collection.name, {**collection.parts, "test": spoilt}, collection.kind)
    )
    record = train(chosen, show=False).record
    assert record["scored"] == "validation"
    assert record["scores"]["recall@1"] == record["validation"]["recall@1"]
    assert set(record["reference"]) == {"frozen features", "their PCA"}
    per_class = json.loads((Path(chosen.out) / "per_class.json").read_text())
    assert set(per_class["labels"]) == set(collection["val"].class_names)


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
    split = np.where(labels < 15, "train", np.where((np.arange(len(labels)) % 8 < 2) & (labels != 20), "query", "gallery"))
    path = tmp_path / "separate.npz"
    np.savez(path, embeddings=rows, labels=labels, split=split if separate else np.where(labels < 15, "train", "test"))
    chosen = type(options())(**{**vars(options(epochs=1)), "data": str(path)})
    record = train(chosen, show=False).record
    with torch.no_grad():
        z = Embedder.load(Path(chosen.out) / "model")(torch.from_numpy(rows)).numpy()
    asks, asked = (split == "query", split == "gallery") if separate else (labels >= 15, labels >= 15)
    query = (z[asks], labels[asks]) if separate else None
    assert record["scores"]["recall@1"] == pytest.approx(evaluate(z[asked], labels[asked], query=query, clusters=False)["recall@1"])
    assert record["scores"]["queries"] == (28 if separate else 120)


def test_the_kept_epoch_is_scored_not_the_last_one(options):
    """An epoch before the last is the best on held-out classes: all scores are those of its model."""
    chosen = options("ms", epochs=6, lr=0.02, val_fraction=0.3, evaluate_every=1, select="best", seed=1)
    result = train(chosen, show=False)
    assert result.epoch < 5
    lines = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    assert result.record["validation"] == lines[result.epoch]["validation"] != lines[-1]["validation"]
    assert result.record["train"] == lines[result.epoch]["train"] != lines[-1]["train"]
