"""DRML in a training: a step by hand, chunks, stops, the projection, what is saved, and what is refused."""

import pytest
import torch

from obdsd.data import open_data
from obdsd.errors import InputError
from obdsd.models import Embedder
from obdsd.training import Trainer, train
from tests.training.reading import assert_same_end, few_steps, trainer_of

SMALL = {"head": "relational", "branches": 2}


def test_a_step_is_the_objective_of_what_the_head_gives(options):
    trainer = trainer_of(options("drml", **SMALL))
    inputs, labels, indices = next(trainer.batches.epoch(0))
    model, objective = trainer.model, trainer.system.objective
    with torch.no_grad():
        nodes = model.head.nodes(inputs)
        decoded = [nodes[:, g] @ objective.decode.weight[g].T + objective.decode.bias[g] for g in (0, 1)]
        errors = torch.stack([(decoded[g] - inputs[:, 6 * g : 6 * g + 6]).square().mean(dim=1) for g in (0, 1)], dim=1)
        expected = 10 * objective.whole(model(inputs), labels) + errors.mean()
        for g in (0, 1):
            own = errors.argmin(dim=1) == g
            assert own.any()
            expected = expected + objective.of_branch[g](nodes[own, g], labels[own])
    assert float(trainer.step(inputs, labels, indices)["base"]) == pytest.approx(float(expected), rel=1e-5)
    assert (objective.whole.loss.alpha, objective.whole.loss.margin) == (64.0, 0.2)


def test_everything_that_is_trained_has_its_rate(options):
    groups = trainer_of(options("drml", **SMALL, head_lr=0.5, objective_lr=0.25, lr=0.125)).optimizer.param_groups
    assert [group["lr"] for group in groups] == [0.5, 1e-3, 0.25, 0.25, 0.25]
    counts = [sum(weight.numel() for weight in group["params"]) for group in groups]
    head, decoders, proxies = 3 * 2 * (3 * 6 + 3) + (3 + 1) + (3 * 6 + 3), 2 * (6 * 3 + 6), 12
    assert counts == [head, decoders, 6 * proxies, 3 * proxies, 3 * proxies]


def test_chunks_of_a_batch_give_the_same_gradient(options):
    whole, chunked = (trainer_of(options("drml", **SMALL, micro_batch=size)) for size in (0, 3))
    batch = next(whole.batches.epoch(0))
    for trainer in (whole, chunked):
        trainer.step(*batch)
    for one, other in zip(whole.system.parameters(), chunked.system.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5 * float(one.grad.abs().max()))


@pytest.mark.parametrize("name", ["drml", "drml+psd"])
def test_a_run_that_stopped_inside_an_epoch_goes_on_to_the_same_bits(finished, broken_off, name):
    broken = broken_off(Trainer, "step", 6, KeyboardInterrupt, name, **SMALL, checkpoint_steps=1)
    train(broken, show=False)
    whole = finished(name, **SMALL)
    assert_same_end(whole.folder, broken.out)
    assert (whole.metrics[1]["loss"]["distillation"] > 0) == ("psd" in name)


def test_what_is_saved_embeds_as_what_was_trained_and_holds_no_decoders(finished):
    record = finished("drml", **SMALL)
    model = Embedder.load(record.folder / "model")
    assert (model.architecture.head, model.architecture.branches) == ("relational", 2)
    assert {name.split(".")[1] for name in model.state_dict()} == {"node", "source", "sink", "score", "join"}
    assert model(torch.from_numpy(open_data(record.options.data)["test"].matrix())).shape == (72, 6)


def test_each_branch_begins_as_the_projection_of_its_features(options):
    trainer = trainer_of(options("drml", **SMALL, head_init="projection"))
    trainer.begin(lambda: None)
    rows = torch.from_numpy(trainer.collection["train"].matrix())
    rows = torch.nn.functional.normalize(rows, dim=1)
    for g, part in enumerate(rows.chunk(2, dim=1)):
        directions = torch.linalg.svd(part)[2][:3]
        P = trainer.model.head.node.weight[g].detach()
        torch.testing.assert_close(P.T @ P, directions.T @ directions, atol=1e-4, rtol=0)
    assert not trainer.model.head.node.bias.any()


def test_a_few_steps_lower_the_loss(options, image_options):
    for chosen in (options("drml", **SMALL, lr=0.01), image_options("drml", **SMALL, lr=0.003, batchnorm="frozen", dim=8)):
        _, parts = few_steps(chosen, count=30)
        assert sum(part["base"] for part in parts[-4:]) < sum(part["base"] for part in parts[:4])


BAD = [
    ({"head": "linear", "branches": None}, "system=drml: head=linear has no branches; use head=relational"),
    ({"slices": 2}, "system=drml: slices=2 are not of this system; leave slices out"),
    ({"system": "drml(weight=-1)"}, "weight=-1.0 must be 0 or more and finite; try 10"),
    ({"system": "drml(decoder_lr=0)"}, "decoder_lr=0.0 must be above 0 and finite; try 1e-3"),
    ({"branches": 4}, "branches=4 must divide dim=6; use another number of branches"),
    ({"branches": 5, "dim": 10}, "branches=5 must divide the 12 features; use another number of branches"),
    ({"branches": 0}, "branches=0 must be 1 or more"),
]


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(("changes", "message"), BAD)
def test_what_cannot_be_is_one_line(options, changes, message):
    with pytest.raises(InputError) as refusal:
        train(options("drml", **{**SMALL, **changes}), show=False)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
