"""What tests read of a run, and trainings of a few steps that leave no folder."""

import itertools
import json
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch.nn.functional import normalize

from obdsd import ProxyDiffusion, Teacher, TeacherBatch
from obdsd.catalogue import TARGETS, TEACHERS
from obdsd.models import Embedder
from obdsd.training import Trainer
from obdsd.training.build import collection_of
from obdsd.training.run_folder import RunFolder

CLOCK = ("seconds", "items_per_second")


class KnowingTeacher(Teacher):
    """Brings proxies and labels of its own: 5 classes, of which a part of the batch may hold any number."""

    def forward(self, inputs, indices=None):
        labels, proxies = indices % 5, torch.eye(5, inputs.shape[1])
        return TeacherBatch(normalize(inputs, dim=1), indices=indices, proxies=proxies[labels.unique()], labels=labels)


class OwnProxies(ProxyDiffusion):
    """The walk over the teacher's own proxies, mixed with its own labels."""

    def check(self, items, objective, teacher):
        pass

    def complete(self, batch, objective, labels):
        return batch

    def __call__(self, teacher, temperature=1.0):
        kin = (teacher.labels[:, None] == teacher.labels).float()
        return (super().__call__(teacher, temperature) + kin / kin.sum(dim=1, keepdim=True)) / 2


def with_own_parts(test):
    """A function in whose course the two are registered."""
    for table, part in ((TEACHERS, {"knowing": KnowingTeacher}), (TARGETS, {"own-proxies": OwnProxies})):
        test = patch.dict(table._homes, part)(test)
    return test


def weights(folder) -> dict[str, torch.Tensor]:
    return Embedder.load(Path(folder) / "model").state_dict()


def model_bytes(folder) -> bytes:
    return (Path(folder) / "model" / "model.safetensors").read_bytes()


def lines(folder) -> list[dict]:
    """metrics.jsonl without what a clock says."""
    return [{name: value for name, value in line.items() if name not in CLOCK} for line in RunFolder(Path(folder)).metrics()]


def assert_equal(first, second):
    """The same tensors by the same names, bit for bit."""
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def assert_same_end(first, second):
    """Two runs without what a clock says: weights as bytes, lines in their order, the result, the scores of each class."""
    assert model_bytes(first) == model_bytes(second)
    assert lines(first) == lines(second)
    one, other = (json.loads((Path(folder) / "result.json").read_text()) for folder in (first, second))
    assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert (Path(first) / "per_class.json").read_bytes() == (Path(second) / "per_class.json").read_bytes()


def rewritten(features, path, **arrays) -> str:
    """The embeddings file again, with these arrays in it."""
    with np.load(features) as file:
        np.savez(path, **{**file, **arrays})
    return str(path)


def trainer_of(options) -> Trainer:
    return Trainer(options, collection_of(options))


def few_steps(options, count=3, epoch=1):
    """A trainer after that many steps of an epoch, and the loss's parts at each."""
    trainer = trainer_of(options)
    trainer.begin(lambda: None)
    trainer.place.epoch = epoch
    trainer.begin_epoch()
    parts = []
    for batch in itertools.islice(itertools.cycle(trainer.batches.epoch(epoch)), count):
        parts.append({name: float(value) for name, value in trainer.step(*batch).items()})
        trainer.place.step += 1
    return trainer, parts
