"""What cannot be trained is refused in one line, before anything is written."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from obdsd.errors import InputError
from obdsd.training import train
from tests.training.reading import trainer_of

BAD = [
    ({"device": "cuda"}, "device='cuda' cannot be used"),
    ({"precision": "16"}, "precision=16 needs a GPU, device=cpu has none; use bf16"),
    (
        {"loss": "pml(TripletMarginLos)"},
        r"^loss=pml\(TripletMarginLos\): TripletMarginLos is not in pytorch-metric-learning's losses; did you mean TripletMarginLoss\?",
    ),
    ({"loss": "pml(CrossBatchMemory)"}, "CrossBatchMemory .*missing"),
    ({"loss": "pml(TripletMarginLoss, miner=BatchHardMinr)"}, r"BatchHardMinr is not in .*miners; did you mean BatchHardMiner\?"),
    ({"backbone": "tiny-conv"}, "backbone=tiny-conv does not take embeddings; use backbone=features"),
    ({"batch_size": 112}, "batch_size=112 needs 56 classes × 2, but 12 classes have 2 images or more"),
    ({"ks": (1, 120)}, "ks=120 is more than the 71 items of test that can be found; ask for fewer"),
    ({"objective_lr": 0.1}, "objective_lr=0.1 does nothing: loss=multi-similarity trains no parameters; leave it out"),
    ({"head": "none", "dim": None}, "head=none on backbone=features leaves nothing to train; use head=linear"),
    ({"select": "best", "evaluate_every": 1}, "select=best needs held-out classes; add val_fraction=0.2"),
    ({"patience": 1, "evaluate_every": 1}, "patience=1 needs held-out classes; add val_fraction=0.2"),
    ({"score": "validation"}, "score=validation needs held-out classes; add val_fraction=0.2"),
    ({"supervision": "none"}, "supervision=none needs two views of an image, and rows of an embeddings file have one; give images"),
    ({"system": "s2sd(widths=[8])"}, r"system=s2sd\(widths=\[8\]\), .*: teaches with heads of its own; use teacher=none beside it"),
    ({"system": "s2sd(widths=[])", "teacher": "none"}, r"system=s2sd\(.*heads=\[\] must be widths of 1 or more; try \(512, .*"),
    ({"targets": "global-diffusion(omega=0.3, neighbours=0)"}, "neighbours=0 must be a whole number, 1 or more; try 50"),
    ({"targets": "global-diffusion(omega=0.3, neighbours=500)"}, "neighbours=500 must be less than the 72 items that train; ask for fewer"),
    ({"targets": "global-diffusion(omega=0.3, neighbours=5)", "teacher": "memory"}, "has no model that could embed the whole training set"),
    ({"targets": "proxy-diffusion(omega=0.3)"}, "has no proxies to walk over; use proxy-anchor, proxy-nca or soft-triple"),
    (
        {"targets": "proxy-diffusion(omega=0.3)", "loss": "proxy-nca", "teacher": "features"},
        "does not live among the student's proxies; use previous-epoch",
    ),
    ({"targets": "balanced(proxy-diffusion(omega=0.3))"}, "has no proxies to walk over"),
    ({"targets": "batch-diffusion(omega=0.99999)"}, r"omega=0\.99999 is too near 1"),
    ({"targets": "proxy-diffusion(omega=0.99999)", "loss": "proxy-nca"}, r"omega=0\.99999 is too near 1"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_input_is_one_line_and_leaves_nothing(options, changes, message):
    chosen = options(**changes)
    with pytest.raises(InputError, match=message) as caught:
        train(chosen, show=False)
    assert "\n" not in str(caught.value)
    assert not Path(chosen.out).exists()


def test_a_batch_of_two_processes_is_not_shared_by_three(options):
    from obdsd.training.loader import TrainingBatches

    trainer = trainer_of(options("ms"))
    with pytest.raises(InputError, match="batch_size=16 must be a multiple of the 3 processes that share it"):
        TrainingBatches(trainer.options, trainer.part, trainer.model, rank=0, processes=3)


@pytest.mark.parametrize("logger", ["tensorboard", "wandb", "mlflow"])
def test_a_logger_that_is_not_installed(options, logger):
    if importlib.util.find_spec(logger):
        pytest.skip(f"{logger} is installed here")
    with pytest.raises(InputError, match=rf"logger={logger} is not installed; pip install {logger}"):
        train(options(logger=logger), show=False)
    assert not Path(options().out).exists()


def test_images_are_refused_where_they_do_not_fit(image_options):
    with pytest.raises(InputError, match="micro_batch=4 would change BatchNorm's statistics; use batchnorm=frozen with it"):
        trainer_of(image_options("ms", micro_batch=4, batchnorm="train"))
    with pytest.raises(InputError, match="backbone=features does not take images; use a backbone for images"):
        trainer_of(image_options("ms", backbone="features", crop=0.08, pretrained=None))


def test_batch_statistics_are_not_shared_between_processes_without_gpus(image_options):
    from obdsd.training.build import with_shared_statistics

    model, device = trainer_of(image_options("ms", batchnorm="train")).model, trainer_of(image_options("ms")).device
    assert with_shared_statistics(model, 1, device) is model
    with pytest.raises(InputError, match="batchnorm=train over 2 processes needs GPUs, device=cpu; use batchnorm=frozen or one process"):
        with_shared_statistics(model, 2, device)


def test_test_classes_that_cannot_be_scored(options, features, tmp_path):
    with np.load(features) as file:
        rows, labels = file["embeddings"], file["labels"]
    np.savez(tmp_path / "one.npz", embeddings=rows, labels=labels, split=np.where(labels < 23, "train", "test"))
    with pytest.raises(InputError, match=r"one\.npz: test: there is one class only \('23'\); retrieval needs 2 or more"):
        train(options(data=str(tmp_path / "one.npz")), show=False)


def test_an_unwritable_folder(options, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"out=.*file/run: cannot be written \(Not a directory\); choose another place"):
        train(options(out=str(tmp_path / "file" / "run")), show=False)
