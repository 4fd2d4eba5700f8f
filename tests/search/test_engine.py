"""An index whose rows onnxruntime made: the same rows, from a file of this very model, and used without it."""

import sys

import numpy as np
import onnx
import pytest

from obdsd.data.transforms import ToNumbers
from obdsd.models import Embedder
from obdsd.models.export import exported
from obdsd.models.onnx_engine import OnnxModel
from obdsd.search import Index, Pass
from tests.search.conftest import QUIET

HERE = {"workers": 0, "batch_size": 5}


@pytest.fixture(scope="module")
def files(tiny, tmp_path_factory):
    """Files of `tiny` and of others, by what they are."""
    folder, model, other = tmp_path_factory.mktemp("onnx"), Embedder.load(tiny), Embedder("tiny-conv", dim=8, seed=4)
    contents = {"own": exported(model), "other": exported(other), "pixels": exported(model, ToNumbers(model.preprocessing))}
    pretending = onnx.load_from_string(contents["other"])
    next(entry for entry in pretending.metadata_props if entry.key == "model").value = model.digest()
    nameless = onnx.load_from_string(contents["own"])
    del nameless.metadata_props[:]
    contents |= {"pretending": pretending.SerializeToString(), "nameless": nameless.SerializeToString(), "nonsense": b"nonsense"}
    for name, content in contents.items():
        (folder / f"{name}.onnx").write_bytes(content)
    return folder


@pytest.fixture
def asked(monkeypatch):
    """How many items each batch held that onnxruntime was given."""
    counts = []
    forward = OnnxModel.forward
    monkeypatch.setattr(OnnxModel, "forward", lambda self, x: counts.append(len(x)) or forward(self, x))
    return counts


@pytest.mark.parametrize("engine", ["onnx", "own.onnx"])
def test_rows_are_those_of_torch(whole, tiny, files, tmp_path, asked, engine, monkeypatch):
    monkeypatch.chdir(files)
    told = []
    how = Pass(**HERE, engine=engine, progress=lambda *stage: told.append(stage))
    index = Index.build(str(tiny), f"folder:{whole / 'photos'}", tmp_path / "x.index", how=how)
    assert asked == [5] * 7 + [1]
    assert ("preparing the model", 1, 1) in told
    truth = Index.open(whole / "photos.index").rows
    assert float((index.rows * truth).sum(axis=1).min()) >= 0.99999
    (answer,) = index.search(str(whole / "photos" / "ant" / "3.png"), 1, how=how)
    assert (answer.hits[0].name, asked[8:]) == ("ant/3.png", [1])


def test_it_is_refreshed_and_searched_where_there_is_no_onnxruntime(place, tiny, monkeypatch):
    data, photo = f"folder:{place / 'photos'}", place / "photos" / "bee" / "0.png"
    Index.build(str(tiny), data, place / "x.index", how=Pass(**HERE, engine="onnx"))
    photo.rename(place / "photos" / "ant" / "new.png")
    for name in ("onnx", "onnxruntime", "onnxscript"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("onnx_engine", "export"):
        monkeypatch.delitem(sys.modules, f"obdsd.models.{name}")
    (place / "photos" / "ant" / "1.png").unlink()
    index = Index.open(place / "x.index").refresh(how=QUIET)
    assert index.change[1:] == (1, 0, 2, 0)
    assert index.search(str(place / "photos" / "ant" / "new.png"), 1, how=QUIET)[0].hits[0].name == "ant/new.png"
    with pytest.raises(ImportError, match=r'^onnxruntime is not installed; pip install "obdsd\[export\]" installs it$'):
        index.refresh(how=Pass(**HERE, engine="onnx"))


def test_a_head_on_features_is_run_too(tmp_path, asked):
    rows = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=rows)
    head = Embedder("features", features=6, dim=5)
    data, engines = str(tmp_path / "x.npz"), ("onnx", "torch")
    made = [Index.build(head, data, tmp_path / f"{engine}.index", how=Pass(engine=engine)).rows for engine in engines]
    np.testing.assert_allclose(*made, rtol=0, atol=1e-6)
    assert asked == [40]


REFUSED = {
    "other": r"is of another model \(tiny-conv, 8 numbers a row, weights or preprocessing of its own\); write one of this model",
    "pixels": r"takes pixels; write one without --with-preprocessing: obdsd export MODEL --out FILE\.onnx$",
    "nameless": "was not written by obdsd export, nobody knows of which model it is; write one: obdsd export",
    "nonsense": r"onnxruntime cannot open it \(.*\); write it anew: obdsd export",
    "missing": "no such file; check the path",
}


@pytest.mark.parametrize(("name", "line"), REFUSED.items(), ids=REFUSED.keys())
def test_a_file_that_does_not_fit_is_refused_before_anything_is_written(whole, tiny, files, tmp_path, name, line):
    how, data = Pass(**HERE, engine=str(files / f"{name}.onnx")), f"folder:{whole / 'photos'}"
    index = Index.open(whole / "photos.index")
    for use in (lambda: Index.build(str(tiny), data, tmp_path / "x.index", how=how), lambda: index.refresh(how=how),
                lambda: index.add(data, how=how)):  # fmt: skip
        with pytest.raises(ValueError, match=rf"/{name}\.onnx: {line}"):
            use()
    assert not (tmp_path / "x.index").exists()


def test_a_file_that_lies_about_its_model_is_found_out_by_its_first_rows(whole, tiny, files, tmp_path):
    how = Pass(**HERE, engine=str(files / "pretending.onnx"))
    with pytest.raises(ValueError, match=r"pretending\.onnx: its rows are not those of torch, the least cosine is .* and must be 0\.99999"):
        Index.build(str(tiny), f"folder:{whole / 'photos'}", tmp_path / "x.index", how=how)
    assert not (tmp_path / "x.index" / "index.json").exists()
    again = Index.build(str(tiny), f"folder:{whole / 'photos'}", tmp_path / "x.index", how=QUIET)
    np.testing.assert_allclose(again.rows, Index.open(whole / "photos.index").rows, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ({"engine": "onxn"}, "engine='onxn' must be torch, onnx, or a file that obdsd export wrote, such as model.onnx"),
        ({"engine": "onnx", "device": "cuda"}, "device=cuda is for engine=torch, onnxruntime runs on the CPU here; leave one of them out"),
    ],
)
def test_what_is_no_engine_is_refused(how, line):
    with pytest.raises(ValueError, match=f"^{line}$"):
        Pass(**how)
