"""Training without labels: two views of an image are its only kin."""

from dataclasses import replace

import numpy as np
import torch

from obdsd.training import build, train
from tests.training.reading import model_bytes, trainer_of


def test_without_supervision_the_labels_change_nothing(image_options, tmp_path, monkeypatch):
    """The training classes' labels are shuffled: the weights stay the same to the last bit."""
    first = train(image_options("nt-xent+obd-sd"), show=False)
    assert first.metrics[1]["loss"]["distillation"] > 0
    honest = build.collection_of

    def shuffled(options):
        collection = honest(options)
        part = collection["train"]
        other = part.replace(labels=np.random.default_rng(0).permutation(part.labels))
        return replace(collection, parts={**collection.parts, "train": other})

    by_labels = train(image_options("ms", out=str(tmp_path / "honest")), show=False)
    monkeypatch.setattr(build, "collection_of", shuffled)
    second = train(image_options("nt-xent+obd-sd", out=str(tmp_path / "second")), show=False)
    assert model_bytes(first.folder) == model_bytes(second.folder)
    by_wrong_labels = train(image_options("ms", out=str(tmp_path / "shuffled")), show=False)
    assert model_bytes(by_labels.folder) != model_bytes(by_wrong_labels.folder)


def test_two_views_of_an_image_are_its_only_kin(image_options):
    trainer = trainer_of(image_options("nt-xent", epoch_batches=2))
    images, labels, indices = next(trainer.batches.epoch(0))
    assert torch.equal(labels, indices)
    assert torch.equal(indices[::2], indices[1::2])
    assert len(indices.unique()) == 4
    assert all(not torch.equal(one, other) for one, other in zip(images[::2], images[1::2], strict=True))  # views differ
    assert len(trainer.batches) == 2
