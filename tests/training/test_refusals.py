"""What cannot be trained is refused in one line before anything is written; a step that cannot be taken ends the run in one line."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd import PreviousEpochTeacher, TeacherBatch, objectives
from obdsd.data import open_data
from obdsd.data.batches import ClassBatches
from obdsd.errors import InputError
from obdsd.training import Trainer, build, train
from obdsd.training.checkpoints import read_state
from tests.training.reading import rewritten, trainer_of

BAD = [
    ({"device": "cuda"}, "device='cuda' cannot be used"),
    ({"precision": "16"}, "precision=16 needs a GPU, device=cpu has none; use bf16"),
    ({"loss": "pml(TripletMarginLos)"}, r"^loss=pml\(TripletMarginLos\): TripletMarginLos is not in .*; did you mean TripletMarginLoss\?"),
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
    ({"supervision": "none"}, "supervision=none needs two views .* have one; give images, or learn from a teacher alone with loss=none"),
    ({"system": "s2sd(widths=[8])"}, r"system=s2sd\(widths=\[8\]\), .*: teaches with heads of its own; use teacher=none beside it"),
    ({"system": "s2sd(widths=[])", "teacher": "none"}, r"system=s2sd\(.*heads=\[\] must be widths of 1 or more; try \(512, .*"),
    ({"targets": "global-diffusion(omega=0.3, neighbours=0)"}, "neighbours=0 must be 1 or more; try 50"),
    ({"targets": "global-diffusion(omega=0.3, neighbours=500)"}, "neighbours=500 must be less than the 72 items that train; ask for fewer"),
    ({"targets": "global-diffusion(omega=0.3, neighbours=5)", "teacher": "memory"}, "has no model that could embed the whole training set"),
    ({"targets": "proxy-diffusion(omega=0.3)"}, "has no proxies to walk over; use proxy-anchor, proxy-nca or soft-triple"),
    ({"targets": "proxy-diffusion(omega=0.3)", "loss": "proxy-nca", "teacher": "features"}, "does not live among the student's proxies"),
    ({"targets": "balanced(proxy-diffusion(omega=0.3))"}, "has no proxies to walk over"),
    ({"targets": "batch-diffusion(omega=0.99999)"}, r"omega=0\.99999 is too near 1"),
    ({"targets": "kernel(omega=0.99999)"}, r"omega=0\.99999 is too near 1"),
    ({"targets": "global-kernel(neighbours=500)"}, "neighbours=500 must be less than the 72 items that train; ask for fewer"),
    ({"targets": "global-kernel", "teacher": "memory"}, "has no model that could embed the whole training set"),
    ({"matching": "rkd(angle=-1)"}, r"matching=rkd\(angle=-1\.0\): angle=-1\.0 must be 0 or more and finite"),
    ({"matching": "cosine(map=false)", "teacher": "features"}, r"matching=cosine\(map=false\): map=False cannot compare rows of length 6"),
    ({"system": "s2sd(widths=[8])", "teacher": "none", "matching": "cosine"}, "whose rows live in spaces of their own; use a matching of"),
    ({"targets": "proxy-diffusion(omega=0.99999)", "loss": "proxy-nca"}, r"omega=0\.99999 is too near 1"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_input_is_one_line_and_leaves_nothing(options, changes, message):
    chosen = options(**changes)
    with pytest.raises(InputError, match=message) as caught:
        train(chosen, show=False)
    assert "\n" not in str(caught.value)
    assert not Path(chosen.out).exists()


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
    trainer = trainer_of(image_options("ms", batchnorm="train"))
    assert build.with_whole_statistics(trainer.model, 0, 1, trainer.device) is trainer.model
    with pytest.raises(InputError, match="batchnorm=train over 2 processes needs GPUs, device=cpu; use batchnorm=frozen or one process"):
        build.with_whole_statistics(trainer.model, 0, 2, trainer.device)


def test_test_classes_that_cannot_be_scored(options, features, tmp_path):
    data = rewritten(features, tmp_path / "one.npz", split=np.repeat(["train", "test"], [23 * 6, 6]))
    with pytest.raises(InputError, match=r"one\.npz: test: there is one class only \('23'\); retrieval needs 2 or more"):
        train(options(data=data), show=False)


def test_an_unwritable_folder(options, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"out=.*file/run: cannot be written \(Not a directory\); choose another place"):
        train(options(out=str(tmp_path / "file" / "run")), show=False)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("pml(TripletMarginLoss, miner=EmbeddingsAlreadyPackagedAsTriplets)", "TripletMarginLoss of .*: AssertionError; stopped"),
        ("pml(VICRegLoss)", ".* not supported for this loss function; stopped before the update.*failure.json$"),
    ],
)
def test_a_loss_of_the_library_that_cannot_be_called_so_is_one_line(options, loss, message):
    with pytest.raises(InputError, match=f"epoch 1, step 1: {message}") as caught:
        train(options("ms", loss=loss), show=False)
    assert "\n" not in str(caught.value)


def test_rows_of_a_teacher_that_have_no_unit_length_are_no_divergence(options, monkeypatch):
    monkeypatch.setattr(PreviousEpochTeacher, "forward", lambda self, inputs, indices=None: TeacherBatch(2 * self.model(inputs)))
    with pytest.raises(InputError, match=r"step 1: .*must be of unit length within 0.001; pass .*failure.json$"):
        train(options("ms+psd-constant"), show=False)


class Broken(torch.nn.Module):
    """A loss that is NaN at its third call."""

    calls = 0

    def forward(self, z, labels, indices_tuple=None):
        self.calls += 1
        return z.sum() * (float("nan") if self.calls == 3 else 1.0)


def test_a_loss_that_is_not_finite_stops_the_run_before_the_update(options, monkeypatch):
    chosen = options()
    monkeypatch.setattr(build.LOSSES, "build", lambda *_, **__: objectives.from_pml(Broken()))
    message = r"epoch 1, step 3: the loss is not finite \(base nan, distillation 0\); stopped before the update.*; try a smaller lr"
    with pytest.raises(InputError, match=message) as caught:
        train(chosen, show=False)
    assert "\n" not in str(caught.value)
    failure = json.loads((Path(chosen.out) / "failure.json").read_text())
    batch = list(ClassBatches(open_data(chosen.data)["train"].labels, 16, 2, seed=0).epoch(0))[2]
    assert failure["indices"] == [draw.item for draw in batch]
    assert not (Path(chosen.out) / "result.json").exists()


def test_a_diverging_model_is_named_with_its_step(options):
    with pytest.raises(InputError, match=r"epoch \d+, step \d+: .*(NaN or infinite|not finite|diverged).*; try a smaller lr"):
        train(options("ms", lr=1e25, epochs=20, optimizer="sgd"), show=False)


def test_rows_without_a_length_are_told_as_divergence(options, monkeypatch):
    monkeypatch.setattr(Trainer, "_forward", lambda self, inputs: self.system.rows(inputs) * 0)
    message = r"step 1: the model's rows no longer have unit length, the training diverged; .*; try a smaller lr"
    with pytest.raises(InputError, match=message):
        train(options("ms"), show=False)


def test_weights_that_are_not_finite_are_not_kept(options, monkeypatch):
    chosen, step = options("ms"), Trainer.step

    def spoil(self, *batch):
        parts = step(self, *batch)
        if self.place.epoch == 1:
            self.model.head[0].weight.data[0, 0] = float("nan")
            monkeypatch.setattr(Trainer, "step", lambda *_: parts)
        return parts

    monkeypatch.setattr(Trainer, "step", spoil)
    with pytest.raises(InputError, match="epoch 2: the model's weights are not finite; the checkpoint before is kept, try a smaller lr"):
        train(chosen, show=False)
    assert read_state(Path(chosen.out) / "checkpoints" / "last.pt")["place"]["epoch"] == 1
