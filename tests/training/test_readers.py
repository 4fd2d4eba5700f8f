"""Models, weights, configurations, checkpoints and records that were damaged: read, or refused in one line."""

import copy
import hashlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from obdsd import cli
from obdsd.models import Embedder
from obdsd.models.weights import fit_file
from obdsd.stopping import Stop
from obdsd.training import RunRecord
from obdsd.training.build import collection_of
from obdsd.training.checkpoints import read_state, write_state
from obdsd.training.loop import Loop
from obdsd.training.run_folder import RunFolder
from obdsd.training.trainer import Trainer
from tests.fuzzing import damaged, fuzz, only_refuses

pytestmark = pytest.mark.usefixtures("as_shipped")
ODD = [None, True, -1, 0, 4, 1.5, 10**30, float("nan"), float("inf"), [], {}, [[]], {"a": 1}]
TEXTS = ["", "none", "avg", "test_vit2", "a\n\x85\x1b[2J", "\udcff"]
ANYTHING = st.sampled_from([*ODD, *TEXTS]) | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.text(max_size=3), max_size=3)


@st.composite
def altered(draw, content):
    """A record of which one to three values, at any depth, are something else or gone."""
    content = copy.deepcopy(content)
    for _ in range(draw(st.integers(1, 3))):
        inside = content
        while True:
            names = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            if not names:
                break
            name = draw(st.sampled_from(names))
            if isinstance(inside[name], (dict, list)) and draw(st.booleans()):
                inside = inside[name]
                continue
            if draw(st.integers(0, 3)):
                inside[name] = copy.deepcopy(draw(ANYTHING))
            else:
                del inside[name]
            break
    return content


def spoilt(content: bytes, reads, writes):
    """A file's content with damage to its bytes, or of another content in its form."""
    return damaged(content) | altered(reads(content)).map(writes)


def json_bytes(content) -> bytes:
    return json.dumps(content).encode()


def yaml_bytes(content) -> bytes:
    return yaml.safe_dump(content).encode()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a model whose backbone has names and shapes of its own."""
    folder = tmp_path_factory.mktemp("model")
    Embedder("tiny-conv", dim=4).save(folder)
    return folder


@fuzz
@given(data=st.data())
def test_model_json(model, tmp_path, data):
    shutil.copytree(model, tmp_path, dirs_exist_ok=True)
    content = (model / "model.json").read_bytes()
    (tmp_path / "model.json").write_bytes(data.draw(spoilt(content, json.loads, json_bytes)))
    assert only_refuses(Embedder.load, tmp_path)


@fuzz
@given(data=st.data())
def test_safetensors(model, tmp_path, data):
    """Mostly its header is damaged: the rest is numbers."""
    shutil.copytree(model, tmp_path, dirs_exist_ok=True)
    content = (model / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(content[:8], "little") if data.draw(st.integers(0, 3)) else len(content)
    (tmp_path / "model.safetensors").write_bytes(data.draw(damaged(content[:end])) + content[end:])
    assert only_refuses(Embedder.load, tmp_path)


CHANGES = [
    lambda tensor: [tensor],
    lambda tensor: "x",
    lambda tensor: tensor.to(torch.int8),
    lambda tensor: tensor.to(torch.complex64),
    lambda tensor: tensor.to(torch.float8_e4m3fn),
    lambda tensor: tensor / 0,
    lambda tensor: tensor.flatten()[:0],
    lambda tensor: tensor.to("meta"),
    lambda tensor: tensor.to_sparse(),
    lambda tensor: tensor.flatten()[:1].expand(2**20, 2**20),
]


@pytest.fixture(scope="module")
def weights(model):
    """A backbone, and its state dict as torch writes it, in both forms."""
    backbone, forms = Embedder.load(model).backbone, (io.BytesIO(), io.BytesIO())
    for new, form in enumerate(forms):
        torch.save(backbone.state_dict(), form, _use_new_zipfile_serialization=bool(new))
    return backbone, [form.getvalue() for form in forms]


@fuzz
@given(data=st.data(), new=st.integers(0, 1))
def test_weights(weights, tmp_path, data, new):
    """Damaged bytes, or other values."""
    backbone, forms = weights
    path = tmp_path / "weights.pt"
    if data.draw(st.booleans()):
        start = data.draw(st.sampled_from([0, len(forms[new]) - 4000]))  # what tells of the numbers lies at the two ends
        spoilt = data.draw(damaged(forms[new][start : start + 4000]))
        path.write_bytes(forms[new][:start] + spoilt + forms[new][start + 4000 :])
    else:
        tensors = backbone.state_dict()
        for name in data.draw(st.lists(st.sampled_from(list(tensors)), min_size=1, max_size=2, unique=True)):
            tensors[name] = CHANGES[data.draw(st.integers(0, len(CHANGES) - 1))](tensors[name])
        torch.save(tensors, path, _use_new_zipfile_serialization=bool(new))
    assert only_refuses(lambda path: fit_file(backbone, path, None), path)


@fuzz
@given(data=st.data())
def test_configuration_files(finished, tmp_path, capsys, data):
    """What is given as --config: a run's config.yaml, or the same as JSON."""
    content = (finished("ms").folder / "config.yaml").read_bytes()
    suffix = data.draw(st.sampled_from(["yaml", "json"]))
    form = (yaml.safe_load, yaml_bytes) if suffix == "yaml" else (json.loads, json_bytes)
    valid = content if suffix == "yaml" else json_bytes(yaml.safe_load(content))
    (tmp_path / f"mine.{suffix}").write_bytes(data.draw(spoilt(valid, *form)))
    code = cli.main(["train", "--config", str(tmp_path / f"mine.{suffix}"), "--print-config"])
    told = capsys.readouterr()
    assert code == 0 or (code == 2 and len(told.err.splitlines()) == 1)


READ = {"config.yaml": (yaml.safe_load, yaml_bytes), "metrics.jsonl": None} | dict.fromkeys(
    ("run.json", "result.json", "per_class.json", "reference.json"), (json.loads, json_bytes)
)


@fuzz
@given(data=st.data(), name=st.sampled_from([name for name in READ if name != "reference.json"]))
def test_the_files_of_a_run(finished, tmp_path, data, name):
    folder = finished("ms").folder
    for each in READ:
        if (folder / each).exists():
            shutil.copy(folder / each, tmp_path / each)
    content = (folder / name).read_bytes()
    (tmp_path / name).write_bytes(data.draw(spoilt(content, *READ[name]) if READ[name] else damaged(content)))
    assert only_refuses(lambda path: RunRecord.read(path).last_epoch, tmp_path)


@fuzz
@given(data=st.data())
def test_the_rows_that_a_run_keeps(finished, tmp_path, data):
    for each in READ:
        if (finished("ms").folder / each).exists():
            shutil.copy(finished("ms").folder / each, tmp_path / each)
    whole = io.BytesIO()
    np.savez(whole, train=np.eye(5, 3, dtype=np.float32), test=np.ones((4, 3), np.float32))
    (tmp_path / "rows.npz").write_bytes(data.draw(damaged(whole.getvalue())))
    assert only_refuses(lambda path: RunRecord.read(path).rows(), tmp_path)


@pytest.fixture
def begun(options):
    """A training that could go on from a checkpoint, and what it would hold."""
    made = options(epochs=2)
    loop = Loop(Trainer(made, collection_of(made)), RunFolder(Path(made.out)), Stop())
    return loop, copy.deepcopy(loop.trainer.state())


@fuzz
@given(data=st.data())
def test_checkpoints(begun, tmp_path, data):
    """With a checksum that fits: else nothing of them is read."""
    path, (loop, state) = tmp_path / "last.pt", begun
    if data.draw(st.booleans()):
        write_state(path, state)
        content = data.draw(damaged(path.read_bytes()[:-32]))
        path.write_bytes(content + hashlib.blake2b(content, digest_size=32).digest())
    else:
        write_state(path, data.draw(altered(state)))
    assert only_refuses(lambda path: loop.restore(read_state(path)), path)
