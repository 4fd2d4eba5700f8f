"""Every option does what it says: what it should change changes, and what it should not stays to the last bit."""

import math
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from obdsd.options import TrainOptions
from obdsd.training import Trainer, loggers, train
from obdsd.training.loop import lr_factor
from tests.training.reading import assert_equal, few_steps, trainer_of

# each with the options beside which its first one is tried out
PLAIN = [
    {"lr": 2e-3}, {"batch_size": 12}, {"per_class": 4}, {"replacement": True}, {"seed": 1}, {"split_seed": 1}, {"test_fraction": 0.25},
    {"val_fraction": 0.3}, {"label_noise": 0.5}, {"dim": 5}, {"hidden": 7}, {"head": "linear"}, {"head_init": "random", "head": "linear"},
    {"feature_power": 0.5}, {"slices": 2}, {"slice_weights": "0.5,1", "slices": 2},
    {"head": "relational", "dim": 8}, {"branches": 2, "head": "relational", "dim": 8},
    {"optimizer": "adamw"}, {"optimizer": "sgd"}, {"momentum": 0.0, "optimizer": "sgd"}, {"clip": 1e-3, "optimizer": "sgd"},
    {"head_lr": 2e-3}, {"weight_decay": 0.3}, {"precision": "bf16"}, {"loss": "multi-similarity(alpha=5.0)"},
]  # fmt: skip
TAUGHT = [("temperature", 0.5), ("ramp", "constant"), ("omega", 0.9), ("teacher", "memory")]
TEACHING = [{"weight": 70.0}, *({name: value, "weight": 50.0} for name, value in TAUGHT)]
IMAGES = [{"crop": 1.0}, {"flip": False}, {"pooling": "avg+max"}, {"size": 24}, {"batchnorm": "frozen"}, {"supervision": "none"}]
ACTING = [("options", "ms", changes) for changes in PLAIN] + [("image_options", "ms", changes) for changes in IMAGES]
ACTING += [("options", "ms+obd-sd", changes) for changes in TEACHING]


@pytest.mark.parametrize(("kind", "preset", "changes"), ACTING, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_an_option_acts(request, kind, preset, changes):
    make, beside = request.getfixturevalue(kind), dict(list(changes.items())[1:])
    one, two = ([*few_steps(make(preset, **each), count=6)[0].model.parameters()] for each in (beside, changes))
    assert [p.shape for p in one] != [p.shape for p in two] or any(not torch.equal(a, b) for a, b in zip(one, two, strict=True))


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
    for epoch, expected in enumerate(({"head.weight", "head.bias"}, {*start})):
        trained = few_steps(chosen, epoch=epoch)[0].model
        assert {name for name, value in trained.named_parameters() if not torch.equal(value, start[name])} == expected


def test_constant_steps_and_cosine():
    assert lr_factor(TrainOptions("rows.npz"), 100, 1.0) == 1.0
    steps = TrainOptions("rows.npz", schedule="steps", lr_steps=(200, 250), lr_gamma=0.3, epochs=300)
    assert [lr_factor(steps, epoch, 0.1) for epoch in (199, 200, 249, 250)] == pytest.approx([1, 0.3, 0.3, 0.09])
    cosine = TrainOptions("rows.npz", schedule="cosine", epochs=10)
    by_hand = [0.5, 0, (1 + math.cos(math.pi * 0.15)) / 2]
    assert [lr_factor(cosine, *at) for at in ((4, 1.0), (9, 1.0), (1, 0.5))] == pytest.approx(by_hand, abs=1e-12)
    warm = TrainOptions("rows.npz", warmup_epochs=2, schedule="steps", lr_steps=(1,), lr_gamma=0.5)  # multiplies the rest
    assert [lr_factor(warm, *at) for at in ((0, 0.1), (0, 1.0), (1, 0.5), (5, 1.0))] == pytest.approx([0.05, 0.5, 0.375, 0.5])


def test_learning_rates_rise_from_nothing_over_the_warm_up(options, monkeypatch):
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
    evaluated = [[name for name in ("validation", "test") if name in line] for line in record.metrics]
    assert evaluated == [[], ["validation"], ["test"], ["validation"]]


def test_a_logger_gets_every_line(options, monkeypatch):
    logged = []
    stand_in = SimpleNamespace(log_metrics=lambda metrics, step: logged.append((step, metrics)), finalize=logged.append)
    monkeypatch.setattr("obdsd.training.loop.logger_of", lambda name, folder: stand_in)
    record = train(options("ms", val_fraction=0.3, evaluate_every=1), show=False)
    lines = [{**line, "epoch": number} for number, line in enumerate(record.metrics, start=1)]  # as people count
    assert logged == [(1, loggers.flat(lines[0])), (2, loggers.flat(lines[1])), "success"]
    assert logged[0][1]["validation/recall@1"] == record.metrics[0]["validation"]["recall@1"]


def test_loggers_are_lightnings_and_write_into_the_run(tmp_path, monkeypatch):
    """None of the three packages is needed to develop: Lightning's classes stand in."""
    made, homes = {}, {"TensorBoardLogger": "fabric.loggers.tensorboard"}
    homes |= dict.fromkeys(("WandbLogger", "MLFlowLogger"), "pytorch.loggers")
    for name, module in homes.items():
        home = sys.modules.get(f"lightning.{module}") or SimpleNamespace()
        monkeypatch.setitem(sys.modules, f"lightning.{module}", home)
        monkeypatch.setattr(home, name, lambda *given, _name=name, **named: made.update({_name: (given, named)}), raising=False)
    monkeypatch.setattr("lightning.pytorch.loggers", sys.modules["lightning.pytorch.loggers"], raising=False)
    for name in ("tensorboard", "wandb", "mlflow"):
        loggers.logger_of(name, tmp_path / "run")
    assert made["TensorBoardLogger"] == ((tmp_path / "run",), {"name": "events", "version": ""})
    assert made["WandbLogger"][1]["save_dir"] == tmp_path / "run"
    assert made["MLFlowLogger"][1]["tracking_uri"] == f"sqlite:///{tmp_path / 'run' / 'mlflow.db'}"
    assert loggers.logger_of(None, tmp_path) is None
