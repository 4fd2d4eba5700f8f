"""Another model, or a file of its embeddings, teaches: beside a loss, or alone and without labels."""

from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from torch.nn.functional import normalize

from obdsd.data import open_data
from obdsd.data.embeddings import Vectors, write_vectors
from obdsd.data.transforms import evaluation_transform
from obdsd.errors import InputError
from obdsd.models import Embedder
from obdsd.training import Trainer, train
from tests.training.reading import assert_same_end, few_steps, lines, model_bytes, rewritten, trainer_of
from tests.training.teaching import ALONE, LARGER, TABLE, at

STRONG = {"ramp": "constant", "weight": 3.0}
SHARP = {"temperature": 0.02}  # of models that nobody has trained all cosines are near 1
IMAGES = {"backbone": "tiny-conv", "batch_size": 8, "head": "linear", "workers": 0, "crop": 0.5, "pretrained": "none"}


def kl_by_hand(teacher, student, tau=1.0):
    """3 · τ² · KL of the softmax of cosines (PSD), by a loop over the items."""
    total, teacher, student = 0.0, teacher.detach().double(), student.detach().double()
    for i in range(len(teacher)):
        p = torch.stack([teacher[i] @ other / tau for other in teacher]).softmax(dim=0)
        q = torch.stack([student[i] @ other / tau for other in student]).softmax(dim=0)
        total += float((p * (p / q).log()).sum())
    return 3.0 * tau**2 * total / len(teacher)


def table_of(teachers):
    """The rows of `table.parquet` by name, as pyarrow alone sees them."""
    table = pyarrow.parquet.read_table(Path(teachers) / "table.parquet")
    return dict(zip(table["path"].to_pylist(), map(torch.tensor, table["embedding"].to_pylist()), strict=True))


def test_a_table_teaches_the_cosines_of_its_rows_to_the_items_that_it_has(options, teachers):
    trainer = trainer_of(options("ms+psd", teacher=TABLE.format(teachers=teachers), **STRONG))
    inputs, labels, indices = next(trainer.batches.epoch(0))
    table = table_of(teachers)
    names = [trainer.part.name(int(index)) for index in indices]
    known = [place for place, name in enumerate(names) if name in table]
    assert 2 < len(known) < len(names)
    rows = normalize(torch.stack([table[names[place]] for place in known]), dim=1).float()
    expected = kl_by_hand(rows, trainer.model(inputs)[known])
    assert float(trainer.step(inputs, labels, indices)["distillation"]) == pytest.approx(expected, rel=1e-4)


def test_items_without_a_row_are_counted_before_the_training_begins(options, teachers, capsys):
    chosen = options("ms+psd", teacher=TABLE.format(teachers=teachers), **STRONG)
    left = [index for index in range(72) if trainer_of(chosen).part.name(index) not in table_of(teachers)]
    train(chosen)
    shown = capsys.readouterr().err
    first = trainer_of(chosen).part.name(left[0])
    told = f"{len(left)} of the 72 items that train have no row in {teachers}/table.parquet and are not taught: {first}, "
    assert told in shown
    assert shown.index(told) < shown.index("epoch")


def test_a_larger_model_sees_the_students_crops_in_its_own_size(options, pictures, teachers):
    """What it is shown is prepared with its own numbers, drawn as the student's; the distillation is by its rows of that."""
    trainer = trainer_of(options("ms+psd", data=pictures, **IMAGES, teacher=LARGER.format(teachers=teachers), **STRONG, **SHARP))
    inputs, labels, indices, shown = next(trainer.batches.epoch(0))
    assert (inputs.shape[2:], shown.shape[2:]) == ((32, 32), (48, 48))
    smaller = torch.nn.functional.interpolate(shown, (32, 32), mode="area")
    alike = [float(torch.corrcoef(torch.stack(pair).flatten(1))[0, 1]) for pair in zip(inputs, smaller, strict=True)]
    assert min(alike) > 0.8  # of other crops 0.6 at most
    trainer.model.eval()
    expected = kl_by_hand(Embedder.load(Path(teachers) / "larger")(shown), trainer.model(inputs), tau=0.02)
    assert float(trainer.step(inputs, labels, indices, shown)["distillation"]) == pytest.approx(expected, rel=1e-3)


def test_a_backbone_with_its_weights_teaches_at_any_size(options, pictures, teachers):
    chosen = options("ms+psd", data=pictures, **IMAGES, teacher="frozen(source=tiny-conv:none, size=40)", **STRONG)
    trainer = trainer_of(chosen)
    *_, shown = next(trainer.batches.epoch(0))
    assert shown.shape[2:] == (40, 40)
    assert trainer.system.teacher.model.architecture.head == "none"
    with pytest.raises(InputError, match=r"teacher=frozen\(.*\): size=40 is for BACKBONE:WEIGHTS, model=.*larger has its own; leave it"):
        trainer_of(chosen.replace(teacher=f"frozen({teachers}/larger, size=40)"))


def test_a_walk_over_the_whole_training_set_is_over_what_a_larger_model_sees_of_it(options, pictures, teachers):
    targets = "global-diffusion(omega=0.3, neighbours=5)"
    trainer = trainer_of(options("ms+global", data=pictures, **IMAGES, teacher=LARGER.format(teachers=teachers), targets=targets, **STRONG))
    trainer.begin_epoch()
    larger = Embedder.load(Path(teachers) / "larger")
    prepare = evaluation_transform(larger.preprocessing)
    expected = larger(torch.stack([prepare(trainer.part[index][0]) for index in range(len(trainer.part))]))
    assert larger.preprocessing.size == 48
    torch.testing.assert_close(trainer.system.targets.rows, expected.detach(), rtol=1e-4, atol=1e-5)


def test_a_model_of_the_students_own_inputs_is_shown_nothing_else(options, pictures, tmp_path):
    Embedder("tiny-conv", dim=7, seed=5).save(tmp_path / "same")
    trainer = trainer_of(options("ms+psd", data=pictures, **IMAGES, teacher=f"frozen({tmp_path / 'same'})", **STRONG))
    assert len(next(trainer.batches.epoch(0))) == 3


def test_without_labels_a_teacher_alone_is_learned_from(options, features, teachers, tmp_path):
    """Wrong labels change nothing, every item comes once an epoch, and the student comes near its teacher."""
    generator = np.random.default_rng(0)
    with np.load(features) as file:
        labels = file["labels"]
    trained = np.isin(labels, open_data(features)["train"].classes.astype(int))
    mixed = labels.copy()
    mixed[trained] = generator.permutation(labels[trained])
    split = np.where(trained, "train", "test")
    changes = {"teacher": TABLE.format(teachers=teachers), **ALONE, "weight": 100.0, "epochs": 30, "lr": 3e-3, "batch_size": 24}
    runs = []
    for name, own in (("true", labels), ("mixed", mixed)):
        data = rewritten(features, tmp_path / f"{name}.npz", labels=own, split=split)
        runs.append(train(options("ms+psd", data=data, out=str(tmp_path / name), **changes), show=False))
    assert model_bytes(runs[0].folder) == model_bytes(runs[1].folder)
    assert (runs[0].options.per_class, runs[0].options.ramp, runs[0].options.preset) == (1, "constant", "none+embeddings+pairwise")
    first, *_, last = lines(runs[0].folder)
    assert first["loss"]["base"] == last["loss"]["base"] == 0
    assert last["loss"]["distillation"] < 0.4 * first["loss"]["distillation"]
    assert last["distillation"]["gradient_share"] == 1
    drawn = torch.cat([indices for _, _, indices in trainer_of(runs[0].options).batches.epoch(0)])
    assert len(drawn) == len(drawn.unique()) == 72


@pytest.mark.parametrize("frozen", [False, True])
def test_images_are_learned_from_a_teacher_alone(options, pictures, tmp_path, frozen):
    """The whole network or a head on its features; the rows of any model by the names of the images."""
    collection = open_data(pictures)
    names = np.array([collection["train"].name(index) for index in range(len(collection["train"]))])
    write_vectors(tmp_path / "z.npz", Vectors(np.random.default_rng(0).normal(size=(len(names), 5)).astype(np.float32), names=names))
    images = {name: value for name, value in IMAGES.items() if not (frozen and name == "crop")}
    chosen = options("ms+psd", data=pictures, **images, **ALONE, frozen=frozen, teacher=f"embeddings({tmp_path / 'z.npz'})")
    _, parts = few_steps(chosen, count=2)
    assert all(part["base"] == 0 and part["distillation"] > 0 for part in parts)


def test_views_of_an_image_are_learned_alone_too(options, pictures, teachers):
    trainer = trainer_of(options("ms+psd", data=pictures, **IMAGES, **ALONE, per_class=2, teacher=LARGER.format(teachers=teachers)))
    *_, indices, _ = next(trainer.batches.epoch(0))
    assert indices[::2].tolist() == indices[1::2].tolist()


WAYS = {
    "table": {"teacher": TABLE, **STRONG},
    "table alone": {"teacher": TABLE, **ALONE},
    "larger": {"teacher": LARGER, **STRONG, **SHARP, **IMAGES, "data": "pictures"},
    "larger alone": {"teacher": LARGER, **ALONE, **SHARP, **IMAGES, "data": "pictures"},
    "labels of a list": {"targets": "affine(scale=2.0, shift=-0.5)", "teacher": TABLE, **STRONG},
}


@pytest.fixture(params=WAYS)
def way(request, teachers, pictures):
    changes = at(teachers, WAYS[request.param])
    return {**changes, "data": pictures} if "data" in changes else changes


def test_born_again_with_labels_of_a_list(finished):
    """Both generations are trained; the second is taught by a listwise loss."""
    record = finished("ms+bar", targets="affine(scale=2.0, shift=-0.5)")
    assert (record.options.preset, record.options.weight) == ("ms+born-again+affine", 100.0)
    assert (record.folder / "first" / "result.json").exists()
    reading = record.metrics[-1]["distillation"]
    assert record.metrics[-1]["loss"]["distillation"] > 0
    assert 0 < reading["entropy"] < 1
    assert 0 < reading["same_class"] < 1


def test_stopped_inside_an_epoch_they_go_on_to_the_same_end(finished, broken_off, way):
    broken = broken_off(Trainer, "step", 6, KeyboardInterrupt, "margin+psd", **way, checkpoint_steps=1)
    train(broken, show=False)
    assert_same_end(finished("margin+psd", **way).folder, broken.out)


def test_in_chunks_they_teach_the_same(options, way):
    batchnorm = {"batchnorm": "frozen"} if "backbone" in way else {}
    (whole, parts), (chunked, same) = (few_steps(options("ms+psd", micro_batch=size, **way, **batchnorm)) for size in (0, 3))
    assert parts[-1]["distillation"] > 0
    assert [each["distillation"] for each in same] == pytest.approx([each["distillation"] for each in parts], rel=1e-4)
    for one, other in zip(whole.model.parameters(), chunked.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_run_goes_on_with_the_rows_that_it_began_with_or_not_at_all(options, broken_off, teachers, tmp_path):
    """Another order of the rows, and other rows of items that do not train, change nothing."""
    table = pyarrow.parquet.read_table(Path(teachers) / "table.parquet")
    names, rows = np.array(table["path"].to_pylist()), np.array(table["embedding"].to_pylist())
    file = tmp_path / "z.npz"
    np.savez(file, names=names, x=rows)
    broken = broken_off(Trainer, "step", 6, KeyboardInterrupt, "ms+psd", teacher=f"embeddings({file})", **STRONG)
    part, other = trainer_of(broken).part, rows.copy()
    trains = np.isin(names, [part.name(index) for index in range(72)])
    other[~trains] += 1
    other[np.flatnonzero(trains)[0], 0] += 1  # of one item that trains
    np.savez(file, names=names, x=other)
    message = r"z\.npz: its rows are not those that taught when the run began; restore it, or begin a new run$"
    with pytest.raises(InputError, match=message):
        train(broken, show=False)
    rows[~trains] += 1
    np.savez(file, names=names[::-1], x=rows[::-1])
    assert train(broken, show=False).epoch == 1


def test_the_checkpoint_holds_no_table(options, teachers):
    trainer = trainer_of(options("ms+psd", teacher=TABLE.format(teachers=teachers), **STRONG))
    assert trainer.system.teacher.table.shape == (72, 9)
    assert [(name, value.shape) for name, value in trainer.state()["system"].items() if "teacher" in name] == [
        ("teacher._extra_state", (16,))
    ]
