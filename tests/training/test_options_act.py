"""Every option does what it says: what it should change changes, and what it should not stays to the last bit."""

import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from obdsd.training import loggers, train
from obdsd.training.loop import flat
from tests.training.reading import assert_equal, few_steps, trainer_of

PLAIN = [
    {"lr": 2e-3},
    {"batch_size": 12},
    {"per_class": 4},
    {"replacement": True},
    {"seed": 1},
    {"split_seed": 1},
    {"test_fraction": 0.25},
    {"val_fraction": 0.3},
    {"label_noise": 0.5},
    {"dim": 5},
    {"hidden": 7},
    {"head": "linear"},
    {"head": "linear", "head_init": "projection"},
    {"optimizer": "adamw"},
    {"optimizer": "sgd"},
    {"head_lr": 2e-3},
    {"weight_decay": 0.3},
    {"clip": 1e-3, "optimizer": "sgd"},
    {"precision": "bf16"},
    {"loss": "multi-similarity(alpha=5.0)"},
]
TEACHING = [{"weight": 70.0}, {"temperature": 0.5}, {"ramp": "constant"}, {"omega": 0.9}, {"teacher": "memory"}]
IMAGES = [
    {"crop": 1.0},
    {"flip": False},
    {"pooling": "avg+max"},
    {"size": 24},
    {"batchnorm": "frozen"},
    {"supervision": "none", "per_class": 2},
]


def changed(trainer, other) -> bool:
    one, two = (list(each.model.parameters()) for each in (trainer, other))
    return [p.shape for p in one] != [p.shape for p in two] or any(not torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("changes", PLAIN, ids=str)
def test_an_option_of_a_training_acts(options, changes):
    assert changed(few_steps(options("ms"))[0], few_steps(options("ms", **changes))[0])


@pytest.mark.parametrize("changes", TEACHING, ids=str)
def test_an_option_of_the_distillation_acts(options, changes):
    usual = {"weight": 50.0}
    assert changed(few_steps(options(**usual), count=6)[0], few_steps(options(**{**usual, **changes}), count=6)[0])


@pytest.mark.parametrize("changes", IMAGES, ids=str)
def test_an_option_of_images_acts(image_options, changes):
    assert changed(few_steps(image_options("ms"))[0], few_steps(image_options("ms", **changes))[0])


def test_momentum_acts_with_sgd(options):
    runs = [few_steps(options("ms", optimizer="sgd", momentum=momentum))[0] for momentum in (0.9, 0.0)]
    assert changed(*runs)


def test_loader_processes_change_nothing(image_options):
    (here, _), (beside, _) = (few_steps(image_options("ms", workers=workers)) for workers in (0, 1))
    assert_equal(here.system.state_dict(), beside.system.state_dict())


def test_channels_last_is_how_weights_and_images_are_stored(image_options):
    seen, losses = [], []
    last, plain = (trainer_of(image_options("ms", channels_last=on)) for on in (True, False))
    for trainer in (last, plain):
        trainer.model.backbone.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        losses.append(trainer.step(*next(trainer.batches.epoch(0)))["base"])
    assert [images.is_contiguous(memory_format=torch.channels_last) for images in seen] == [True, False]
    kernels = [weight for weight in last.model.parameters() if weight.ndim == 4]
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in kernels)
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "compiled"), [("ms+psd-constant", "model"), ("ms+s2sd-dsd", "backbone")])
def test_compile_reaches_the_step(image_options, as_shipped, monkeypatch, name, compiled):
    """torch traces the model and gets the same loss. (Its C++ compiler would take most of a minute: the traced graph is run as it is.)"""
    graphs = []
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=lambda graph, inputs: graphs.append(graph) or graph.forward))
    changes = {} if compiled == "model" else {"system": "s2sd(widths=[8])"}
    chosen = image_options(name, batchnorm="frozen", **changes)
    plain, fast = trainer_of(chosen), trainer_of(chosen.replace(compile=True))
    batch = next(plain.batches.epoch(0))
    expected, parts = plain.step(*batch), fast.step(*batch)
    assert graphs
    torch.testing.assert_close(parts["base"], expected["base"], rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()


def test_the_head_alone_moves_first(image_options):
    chosen = image_options("ms", head_only_epochs=1)
    start = {name: value.clone() for name, value in trainer_of(chosen).model.named_parameters()}
    moved = {name for name, value in few_steps(chosen, epoch=0)[0].model.named_parameters() if not torch.equal(value, start[name])}
    assert moved == {"head.weight", "head.bias"}
    assert {name for name, value in few_steps(chosen, epoch=1)[0].model.named_parameters() if not torch.equal(value, start[name])} == {
        *start
    }


def test_learning_rates_rise_from_nothing_over_the_warm_up(options, monkeypatch):
    from obdsd.training import Trainer

    rates, step = [], Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda self, *batch: (rates.append(self.optimizer.param_groups[0]["lr"]), step(self, *batch))[1])
    train(options("ms", lr=0.08, warmup_epochs=2, epochs=3), show=False)
    assert rates == pytest.approx([0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, *[0.08] * 4])


def test_fewer_batches_an_epoch(options):
    fewer, more = (trainer_of(options("ms", epoch_batches=number)).batches for number in (2, 99))
    assert (len(fewer), len(list(fewer.epoch(0)))) == (2, 2)
    assert len(more) == 4


def test_evaluations_come_as_often_as_asked_for(finished):
    record = finished("ms", epochs=4, evaluate_every=2, test_every=3, val_fraction=0.3)
    assert [("validation" in line, "test" in line) for line in record.metrics] == [
        (False, False),
        (True, False),
        (False, True),
        (True, False),
    ]


def test_a_logger_gets_every_line(options, monkeypatch):
    logged = []
    stand_in = SimpleNamespace(
        log_metrics=lambda metrics, step: logged.append((step, metrics)), finalize=lambda status: logged.append(status)
    )
    monkeypatch.setattr("obdsd.training.loop.logger_of", lambda name, folder: stand_in)
    record = train(options("ms", val_fraction=0.3, evaluate_every=1), show=False)
    assert logged == [(0, flat(record.metrics[0])), (1, flat(record.metrics[1])), "success"]
    assert logged[0][1]["validation/recall@1"] == record.metrics[0]["validation"]["recall@1"]


def test_loggers_are_lightnings_and_write_into_the_run(tmp_path, monkeypatch):
    """None of the three packages is needed to develop: Lightning's classes stand in."""
    made = {}
    for module, name in (
        ("fabric.loggers.tensorboard", "TensorBoardLogger"),
        ("pytorch.loggers", "WandbLogger"),
        ("pytorch.loggers", "MLFlowLogger"),
    ):
        home = sys.modules.get(f"lightning.{module}") or SimpleNamespace()
        monkeypatch.setitem(sys.modules, f"lightning.{module}", home)
        monkeypatch.setattr(home, name, lambda *given, _name=name, **named: made.update({_name: (given, named)}), raising=False)
    for name in ("tensorboard", "wandb", "mlflow"):
        loggers.logger_of(name, tmp_path / "run")
    assert made["TensorBoardLogger"] == ((tmp_path / "run",), {"name": "events", "version": ""})
    assert made["WandbLogger"][1]["save_dir"] == tmp_path / "run"
    assert made["MLFlowLogger"][1]["tracking_uri"] == f"sqlite:///{tmp_path / 'run' / 'mlflow.db'}"
    assert loggers.logger_of(None, tmp_path) is None
