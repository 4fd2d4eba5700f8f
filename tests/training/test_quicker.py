import copy

import pytest
import torch
from torch import nn

from obdsd import PreviousEpochTeacher
from obdsd.models import Embedder
from obdsd.training import train
from obdsd.training.quicker import LEAST_COSINE, WAYS, Answers, best_way, computes_bfloat16
from tests.training.reading import few_steps, lines, trainer_of

CPU = torch.device("cpu")


@pytest.fixture
def network():
    model = Embedder("tiny-conv", dim=8, seed=3)
    for _ in range(3):
        model.train()(torch.rand(8, 3, 32, 32))  # statistics that are not those of the beginning
    return model.eval()


@pytest.fixture
def images():
    return torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))


class Delicate(nn.Module):
    """Lives on differences that bfloat16 does not hold."""

    def forward(self, x):
        rows = x.flatten(1)[:, :9]
        return nn.functional.normalize(((rows + 100) - 100).float(), dim=1)


@pytest.mark.parametrize("precision", WAYS)
def test_every_way_gives_the_networks_rows(network, images, precision):
    before = copy.deepcopy(network.state_dict())
    with torch.no_grad():
        rows, quick = network(images), WAYS[precision](network)(images)
    assert quick.dtype == torch.float32
    assert float((rows * quick).sum(dim=1).min()) >= (LEAST_COSINE if precision == "bf16" else 1 - 1e-6)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_bfloat16_is_taken_only_where_rows_stay_what_they_were(network, images, monkeypatch):
    monkeypatch.setattr("obdsd.training.quicker.computes_bfloat16", lambda device: True)
    fine, delicate = best_way(network, images, "auto"), best_way(Delicate(), images, "auto")
    assert (fine.precision, delicate.precision) == ("bf16", "32")
    assert fine.cosine >= LEAST_COSINE
    asked = best_way(Delicate(), images, "bf16")  # who asks for it gets it, and is told the cosine
    assert asked.precision == "bf16"
    assert asked.cosine < LEAST_COSINE
    assert best_way(network, images, "32").precision == "32"
    monkeypatch.setattr("obdsd.training.quicker.computes_bfloat16", lambda device: False)
    assert best_way(network, images, "auto").precision == "32"


def test_what_the_processor_computes(monkeypatch):
    for known, expected in (({"avx512_bf16": True}, True), ({"avx512_bf16": False, "avx2": True}, False)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda known=known: known)
        assert computes_bfloat16(CPU) is expected
    assert not computes_bfloat16(torch.device("meta"))


def test_a_run_tells_and_records_how_its_teacher_computes(image_options, capfd):
    chosen = image_options("ms+obd-sd", epochs=3, teacher_precision="32")
    train(chosen)
    first, *later = lines(chosen.out)
    assert "teacher" not in first  # nobody is asked in the first epoch
    assert [line["teacher"]["precision"] for line in later] == ["32", "32"]
    assert all(line["teacher"]["cosine"] > 0.99999 for line in later)
    told = str(Answers("32", 1.0)).partition("(")[0]
    assert capfd.readouterr().err.replace("\n", " ").count(told.strip()) == 1


@pytest.mark.parametrize(("teacher", "precision"), [("previous-epoch", "bf16"), ("previous-epoch", "32"), ("ema", None), ("memory", None)])
def test_a_teacher_that_is_a_network_answers_by_a_copy(image_options, teacher, precision):
    trainer, _ = few_steps(image_options("ms+obd-sd", epochs=2, teacher=teacher, teacher_precision=precision or "auto"), epoch=1)
    assert (trainer.answers.precision if trainer.answers else None) == precision
    assert (trainer.system.teacher.faster is not None) == (precision is not None)


def test_rows_of_a_head_are_taught_as_they_are(options):
    trainer, _ = few_steps(options("ms+obd-sd", epochs=2), epoch=1)
    assert trainer.answers is None


def test_channels_last_is_for_networks_that_learn_images(options, image_options):
    assert trainer_of(image_options("ms")).options.channels_last is True
    assert trainer_of(image_options("ms", channels_last=False)).options.channels_last is False
    assert trainer_of(options("ms")).options.channels_last is None


def test_a_copy_follows_its_teacher(network, images):
    teacher, made = PreviousEpochTeacher(network), []
    teacher.faster = lambda model: made.append(model) or WAYS["32"](model)
    names = [*teacher.state_dict()]
    torch.testing.assert_close(teacher(images).embeddings, network(images).detach(), rtol=0, atol=1e-5)
    teacher(images)
    assert len(made) == 1  # asked twice, copied once
    with torch.no_grad():
        network.head.weight.neg_()
    teacher.update(network)
    torch.testing.assert_close(teacher(images).embeddings, network(images).detach(), rtol=0, atol=1e-5)
    other = PreviousEpochTeacher(network)
    with torch.no_grad():
        other.model.head.weight.neg_()
    nn.ModuleList([teacher]).load_state_dict(nn.ModuleList([other]).state_dict())  # as part of a system
    torch.testing.assert_close(teacher(images).embeddings, other.model(images), rtol=0, atol=1e-5)
    assert [*teacher.state_dict()] == names
    assert len(made) == 3
