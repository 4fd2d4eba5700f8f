import json
import os
import pickle
import resource
import stat
from dataclasses import replace
from unittest.mock import Mock

import jaxtyping
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from obdsd import InputError
from obdsd.models import Embedder
from obdsd.models.weights import fit
from obdsd.provenance import TrainedOn
from tests.fuzzing import only_refuses
from tests.models.oracle import images

MADE = {
    "convolutional": {"backbone": "test_resnet", "dim": 8, "pooling": "avg+max", "batchnorm": "frozen"},
    "transformer at another size": {"backbone": "test_vit", "size": 64, "pooling": "token", "head": "two-layer"},
    "tiny, no head": {"backbone": "tiny-conv", "head": "none"},
    "features": {"backbone": "features", "features": 6, "dim": 3},
    "slices": {"backbone": "features", "features": 6, "dim": 4, "slices": 2, "slice_weights": [0.5, 1]},
    "relations": {"backbone": "features", "features": 6, "dim": 4, "head": "relational", "branches": 2},
    "composed": {"backbone": "features", "features": 6, "dim": 4, "slices": 2, "head": "composed"},
    "power": {"backbone": "features", "features": 6, "dim": 3, "feature_power": 0.5},
    "features, no head": {"backbone": "features", "features": 6, "head": "none"},
}


TRAINED_ON = TrainedOn(data="zoo", split_seed=3, test_fraction=0.5, parts={"train": "f"}, classes={"train": "a b"}, items={"train": "c d"})


def inputs(model: Embedder) -> torch.Tensor:
    return torch.randn(4, 6) if model.preprocessing is None else images(4)


@pytest.mark.parametrize("arguments", MADE.values(), ids=MADE.keys())
def test_what_is_loaded_is_what_was_saved(arguments, tmp_path, monkeypatch):
    model = Embedder(**arguments, pretrained="none", seed=7)
    model(inputs(model))  # statistics that are no defaults
    if model.preprocessing is not None:
        model.preprocessing = replace(model.preprocessing, size=48, resize=50, channels="bgr", range=255.0)
    model.save(tmp_path / "new" / "model")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    loaded = Embedder.load(tmp_path / "new" / "model")
    assert loaded.architecture == model.architecture
    assert loaded.preprocessing == model.preprocessing
    assert not loaded.training
    x = inputs(model)
    assert torch.equal(loaded(x), model.eval()(x))
    norms = [module for module in loaded.train().modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert all(norm.training == (model.architecture.batchnorm == "train") for norm in norms)


def test_saving_over_a_model_replaces_it_whole_or_not_at_all(tmp_path, monkeypatch):
    first, second = Embedder("features", features=6, seed=1), Embedder("features", features=6, seed=2)
    first.save(tmp_path)
    record = json.loads((tmp_path / "model.json").read_text())
    assert record["versions"]["torch"] == torch.__version__.split("+")[0]
    assert (record["backbone"], record["features"], record["dim"]) == ("features", 6, 128)
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, os.strerror(28))))
    with pytest.raises(InputError, match=r"model.safetensors: cannot be written \(No space left on device\); make room or choose"):
        second.save(tmp_path)
    monkeypatch.undo()
    assert torch.equal(Embedder.load(tmp_path).head.weight, first.head.weight)
    second.save(tmp_path)
    assert torch.equal(Embedder.load(tmp_path).head.weight, second.head.weight)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "model.safetensors"]
    assert all(stat.S_IMODE(path.stat().st_mode) & stat.S_IRUSR for path in tmp_path.iterdir())


@pytest.fixture(scope="module", autouse=True)
def as_users_see_it():
    """The checks of types that run beside the tests would speak before ours."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small model's folder and its model.json."""
    folder = tmp_path_factory.mktemp("model")
    model = Embedder("tiny-conv", dim=4)
    model.trained_on = TRAINED_ON
    model.save(folder)
    return folder, json.loads((folder / "model.json").read_text())


GONE = object()
BAD = {
    "format": (9, r"model.json: is a model of another version of obdsd \(format 9, not 8\); update obdsd"),
    "made_by": ({"size": 0.5}, r"made_by=\{'size': 0.5\} must hold texts and whole numbers; save the model again"),
    "batchnorm": (["frozen"], r"batchnorm=\['frozen'\] is no choice"),
    "dim": ("4", "dim='4' must be a whole number"),
    "size": (True, "size=True must be a whole number"),
    "slices": (3, "slices=3 must divide dim=4; use slices=1 or a head whose length can be divided"),
    "branches": (2, "branches=2 does not go with head=linear; give both branches and head=relational, or neither"),
    "slice_weights": (["1"], r"slice_weights=\['1'\] must be positive numbers; give one a slice, as 0.5,1,1,1"),
    "feature_power": ("0.5", "feature_power='0.5' must be a number above 0, 10 at most; try 0.5"),
    "preprocessing": (None, "preprocessing=None must be given for images only"),
    "preprocessing.size": (0, "preprocessing.size=0 must be a whole number"),
    "preprocessing.mean": ([0.5, 0.5], r"preprocessing.mean=\(0.5, 0.5\) must be three numbers; give one a channel"),
    "preprocessing.std": ([0.5, 0.5, 0], "preprocessing.std=0 must be a positive number"),
    "preprocessing.range": (float("nan"), "preprocessing.range=nan must be a positive number"),
    "preprocessing.channels": ("grey", "preprocessing.channels='grey' is no choice; use rgb or bgr"),
    "preprocessing.interpolation": (3, "preprocessing.interpolation=3 is no choice; use bilinear or bicubic"),
    "preprocessing.resize": (GONE, "preprocessing=without resize is incomplete; save the model again"),
    "trained_on": ([], r"trained_on=\[\] must hold data, split_seed, test_fraction, parts, classes, items; save the model again"),
    "trained_on.items": (GONE, "trained_on=.* must hold data, split_seed"),
    "trained_on.split_seed": (-1, "trained_on=.* must hold a split and digests; save the model again"),
    "trained_on.test_fraction": ("0.5", "trained_on=.* must hold a split and digests"),
    "trained_on.classes": ({"train": 5}, "trained_on=.* must hold a split and digests"),
    "versions": (GONE, "model.json=without versions is incomplete"),
    "colour": ("red", r"model.json=with \['colour'\] has fields that are not known; update obdsd or remove them"),
}


def changed(record: dict, field: str, value: object) -> dict:
    record = json.loads(json.dumps(record))
    *outer, name = field.split(".")
    inner = record[outer[0]] if outer else record
    if value is GONE:
        del inner[name]
    else:
        inner[name] = value
    return record


def load_with(folder, tmp_path, text: str | bytes) -> Embedder:
    """The saved model with another model.json."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (tmp_path / "model.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    return Embedder.load(tmp_path)


def test_what_a_model_was_trained_on_stays_with_it_older_folders_say_nothing(saved, tmp_path):
    folder, record = saved
    assert Embedder.load(folder).trained_on == Embedder.load(folder).headless().trained_on == TRAINED_ON
    seventh = load_with(folder, tmp_path / "7", json.dumps(changed(record, "format", 7))).trained_on
    assert seventh == replace(TRAINED_ON, items={})  # samples of files, which cannot be compared
    sixth = changed(changed(record, "branches", GONE), "format", 6)
    assert load_with(folder, tmp_path / "6", json.dumps(sixth)).digest() == Embedder.load(folder).digest()
    fifth = changed(changed(sixth, "feature_power", GONE), "format", 5)
    fourth = changed(changed(changed(fifth, "slices", GONE), "slice_weights", GONE), "format", 4)
    assert load_with(folder, tmp_path / "5", json.dumps(fifth)).digest() == Embedder.load(folder).digest()
    assert load_with(folder, tmp_path / "4", json.dumps(fourth)).digest() == Embedder.load(folder).digest()
    second = changed(changed(changed(fourth, "unit_features", GONE), "made_by", GONE), "format", 2)
    assert load_with(folder, tmp_path / "2", json.dumps(second)).trained_on == seventh
    first = changed(changed(second, "trained_on", GONE), "format", 1)
    assert load_with(folder, tmp_path / "1", json.dumps(first)).trained_on is None


@pytest.mark.parametrize(("field", "value", "message"), [(field, *rest) for field, rest in BAD.items()], ids=BAD.keys())
def test_a_wrong_field_is_named(saved, tmp_path, field, value, message):
    folder, record = saved
    with pytest.raises(InputError, match=message):
        load_with(folder, tmp_path, json.dumps(changed(record, field, value)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "model.json: is not JSON .*; save the model again"),
        (b"\xff\xfe\xff", "model.json: is not JSON"),
        (b"[" * 100_000, "model.json: is not JSON"),
        (b'"model"', "model.json='model' must be an object with named fields"),
    ],
)
def test_what_is_no_object_is_refused(saved, tmp_path, text, message):
    with pytest.raises(InputError, match=r"model.json: no such file; give a folder that Embedder.save wrote"):
        Embedder.load(tmp_path)
    with pytest.raises(InputError, match=message):
        load_with(saved[0], tmp_path, text)


def test_sizes_that_only_the_json_claims_allocate_nothing(saved, tmp_path):
    folder, record = saved
    wide = {**record, "head": "two-layer", "hidden": 16384, "dim": 16384}  # 1 GB
    giant = {**record, "backbone": "vit_large_patch14_224"}  # 1.2 GB
    for claim in (wide, giant):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(InputError, match=r"model.safetensors: does not fit the model, \d+ missing: .*; check the backbone's name"):
            load_with(folder, tmp_path, json.dumps(claim))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB


NOT_WEIGHTS = [
    (lambda weight: weight.to(torch.int8), r"head.weight is of another kind \(torch.int8 for torch.float32\); convert it"),
    (lambda weight: weight.to(torch.complex64), r"head.weight is of another kind \(torch.complex64 for torch.float32\)"),
    (lambda weight: weight.to_sparse(), r"head.weight is of another kind \(torch.float32 for torch.float32\)"),
    (lambda weight: weight.to("meta"), r"head.weight is of another kind"),
    (lambda weight: weight * float("nan"), r"head.weight has NaN or infinite values; take weights from before the training diverged"),
    (lambda weight: weight / 0, r"head.weight has NaN or infinite values"),
]


@pytest.mark.parametrize(("spoil", "message"), NOT_WEIGHTS)
def test_weights_that_torch_would_take_without_a_word(saved, spoil, message):
    model = Embedder.load(saved[0])
    with pytest.raises(InputError, match=message):
        fit(model, {**model.state_dict(), "head.weight": spoil(model.head.weight.detach())}, "file")


def test_half_precision_and_infinities_of_a_mask_are_weights(saved):
    model = Embedder.load(saved[0])
    weights = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in model.state_dict().items()}
    fit(model, weights, "file")
    model.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
    fit(model, model.state_dict(), "file")


def test_another_backbones_tensors_are_named(saved, tmp_path):
    folder, record = saved
    with pytest.raises(InputError, match=r"model.safetensors: does not fit the model, \d+ missing: backbone.conv1.0.weight.*unexpected"):
        load_with(folder, tmp_path, json.dumps({**record, "backbone": "test_resnet"}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "model.safetensors: no such file"),
        (pickle.dumps({"head.weight": os.getcwd}), "model.safetensors: cannot be read as weights without executing code"),
    ],
)
def test_a_damaged_weights_file_is_refused(saved, tmp_path, content, message):
    (tmp_path / "model.json").write_text(json.dumps(saved[1]))
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=message):
        Embedder.load(tmp_path)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["avg", "none", "features", "test_vit2", 10**30]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


FIELDS = [*BAD, "backbone", "pooling", "head", "features", "preprocessing.extra"]


@given(changes=st.dictionaries(st.sampled_from(FIELDS), ANYTHING | st.just(GONE), min_size=1, max_size=3))
def test_any_model_json_loads_or_is_refused_in_one_line(saved, tmp_path_factory, changes):
    folder, record = saved
    for field, value in changes.items():
        outer, _, name = field.rpartition(".")
        inside = record.get(outer) if outer else record  # another change may have put something else there
        if isinstance(inside, dict) and (name in inside or value is not GONE):
            record = changed(record, field, value)
    assert only_refuses(lambda place: load_with(folder, place, json.dumps(record)), tmp_path_factory.mktemp("fuzz"))


@given(cut=st.integers(0, 2000), byte=st.binary(min_size=0, max_size=3))
def test_a_safetensors_file_with_other_bytes_is_refused_or_read(saved, tmp_path_factory, cut, byte):
    folder, record = saved
    good = (folder / "model.safetensors").read_bytes()
    damaged = tmp_path_factory.mktemp("fuzz")
    (damaged / "model.json").write_text(json.dumps(record))
    (damaged / "model.safetensors").write_bytes(good[:cut] + byte + good[cut + len(byte) :])
    assert only_refuses(Embedder.load, damaged)
