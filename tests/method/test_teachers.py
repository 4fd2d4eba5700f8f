import copy

import pytest
import torch
from torch import nn

from obdsd import EMATeacher, FrozenTeacher, MemoryTeacher, PreviousEpochTeacher, SelfDistillation
from tests.oracles import slow


class Normalise(nn.Module):
    def forward(self, x):
        return nn.functional.normalize(x, dim=1)


def network(seed: int) -> nn.Module:
    """With dropout and BatchNorm, so that train and eval mode differ."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3), Normalise())


def train_a_little(model: nn.Module) -> None:
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for seed in range(3):
        model(slow.unit_rows(16, 5, seed)).square()[:, 0].sum().backward()
        optimizer.step()
        optimizer.zero_grad()


ALL = {
    "previous epoch": lambda model: PreviousEpochTeacher(model),
    "ema": lambda model: EMATeacher(model, 0.9),
    "frozen": lambda model: FrozenTeacher(model),
    "table": lambda model: FrozenTeacher.from_embeddings(slow.unit_rows(20, 3, seed=1)),
    "memory": lambda model: MemoryTeacher(20, 3),
}
every_teacher = pytest.mark.parametrize("make", ALL.values(), ids=ALL.keys())
x, indices = slow.unit_rows(4, 5, seed=2), torch.tensor([7, 3, 11, 0])


@every_teacher
def test_a_teacher_stays_in_eval_mode_and_out_of_the_optimiser(make):
    teacher = make(network(0))
    parent = nn.ModuleDict({"student": network(0), "teacher": teacher})
    parent.train()
    assert parent["student"].training
    assert not any(module.training for module in teacher.modules())
    assert not any(p.requires_grad for p in teacher.parameters())
    first, second = teacher(x, indices), teacher(x, indices)
    assert torch.equal(first.embeddings, second.embeddings)  # no dropout
    assert not first.embeddings.requires_grad
    assert torch.equal(first.indices, indices)


@every_teacher
def test_a_teacher_is_restored_from_its_state_dict(make, tmp_path):
    model = network(0)
    teacher = make(model)
    train_a_little(model)
    teacher.step(model)
    teacher.update(model)
    teacher.observe(indices, slow.unit_rows(4, 3, seed=3))
    torch.save(teacher.state_dict(), tmp_path / "teacher.pt")
    restored = make(network(1))
    restored.load_state_dict(torch.load(tmp_path / "teacher.pt", weights_only=True))
    for asked in (indices, torch.tensor([1, 2, 3, 7])):
        before, after = teacher(x, asked), restored(x, asked)
        assert torch.equal(before.embeddings, after.embeddings)
        assert (before.known is None and after.known is None) or torch.equal(before.known, after.known)


def test_previous_epoch_is_the_model_of_the_last_update_and_no_later():
    model = network(0)
    teacher = PreviousEpochTeacher(model)
    for _epoch in range(2):
        before = copy.deepcopy(model).eval()(x)
        train_a_little(model)
        teacher.step(model)
        teacher.observe(indices, model(x))
        assert torch.equal(teacher(x).embeddings, before)
        assert not torch.equal(model.eval()(x), before)
        teacher.update(model)
        assert torch.equal(teacher(x).embeddings, model.eval()(x))


def test_a_wrapped_student_fits():
    class Wrapped(nn.Module):  # as DistributedDataParallel does
        def __init__(self, module):
            super().__init__()
            self.module = module

    model = network(0)
    teacher = PreviousEpochTeacher(model)
    train_a_little(model)
    teacher.update(Wrapped(model))
    assert torch.equal(teacher(x).embeddings, model.eval()(x))


def test_ema_is_the_running_average_of_weights_and_statistics():
    model = network(0)
    teacher = EMATeacher(model, decay=0.75)
    expected = {name: value.double() for name, value in model.state_dict().items()}
    for _ in range(3):
        train_a_little(model)
        teacher.step(model)
        for name, value in model.state_dict().items():
            expected[name] = 0.75 * expected[name] + 0.25 * value.double()
    counter = "1.num_batches_tracked"  # an integer is copied
    expected[counter] = model.state_dict()[counter].double()
    for name, value in teacher.model.state_dict().items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-6)
    frozen = copy.deepcopy(teacher.model.state_dict())
    teacher.update(model)  # an epoch's end means nothing to it
    assert all(torch.equal(frozen[name], value) for name, value in teacher.model.state_dict().items())


def test_a_frozen_teacher_never_changes_and_sees_transformed_inputs():
    model = network(0)
    teacher = FrozenTeacher(model, transform=lambda images: 2 * images)
    expected = copy.deepcopy(model).eval()(2 * x)
    train_a_little(model)
    teacher.begin(model, lambda: model)
    teacher.step(model)
    teacher.update(model)
    assert torch.equal(teacher(x).embeddings, expected)


def test_a_table_is_a_copy():
    rows = slow.unit_rows(5, 3, seed=4)
    teacher = FrozenTeacher.from_embeddings(rows)
    expected = rows[[4, 0]].clone()
    rows.zero_()
    assert torch.equal(teacher(None, torch.tensor([4, 0])).embeddings, expected)


def test_memory_knows_each_sample_by_its_latest_embedding():
    teacher = MemoryTeacher(5, 3)
    first, second = slow.unit_rows(2, 3, seed=5), slow.unit_rows(3, 3, seed=6)
    teacher.observe(torch.tensor([0, 3]), first)
    teacher.observe(torch.tensor([4, 3, 4]), second)  # of a sample drawn twice, the last counts
    batch = teacher(None, torch.tensor([0, 1, 3, 4]))
    assert batch.known.tolist() == [True, False, True, True]
    assert torch.equal(batch.embeddings[[0, 2, 3]], torch.stack([first[0], second[1], second[2]]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_memory_of_a_half_precision_student_teaches(dtype):
    teacher = MemoryTeacher(20, 16)
    rows = slow.unit_rows(20, 16, seed=10).to(dtype)
    teacher.observe(torch.arange(20), rows)
    batch = teacher(None, torch.arange(20))
    torch.testing.assert_close(batch.embeddings.norm(dim=1), torch.ones(20))
    torch.testing.assert_close(batch.embeddings, rows.float(), rtol=0, atol=1e-2)
    assert SelfDistillation(1.0, ramp="constant")(rows, batch, 1.0).isfinite()
    teacher.observe(torch.arange(0), rows[:0])  # nothing to remember


def test_ema_keeps_masks():
    model = nn.Linear(2, 2)
    model.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
    teacher = EMATeacher(model, 0.5)
    teacher.step(model)
    assert teacher.model.mask.tolist() == [0.0, float("-inf")]
