"""Data by name: the table, what is passed on, what was meant by a wrong name, and a data set from outside."""

import subprocess
import sys

import numpy as np
import pytest

from obdsd.catalogue import DATA, register
from obdsd.data import collect, data_kind, open_data, training_defaults
from obdsd.data.items import Rows
from obdsd.errors import InputError
from tests.data.trees import picture, touch

X, Y = np.arange(24, dtype=np.float32).reshape(12, 2), np.repeat(["a", "b", "c", "d", "e", "f"], 2)


@pytest.fixture(autouse=True)
def own_table(monkeypatch):
    """The names of the package alone; what a test registers is gone after it."""
    own = ("cub200", "cars196", "sop", "inshop", "folder", "manifest", "embeddings", "glyphs")
    monkeypatch.setattr(DATA, "_homes", {name: DATA._homes[name] for name in own})


def test_every_name_of_the_table_opens(tmp_path):
    """What they read has tests of its own; here an empty folder is enough to see who reads."""
    refusals = {name: f"{name}: no known layout" for name in ("cub200", "cars196", "sop", "inshop")}
    refusals |= {"folder": "holds no image", "manifest": "is no regular file", "embeddings": "is no embeddings file"}
    assert [*refusals, "glyphs"] == DATA.names
    for name, message in refusals.items():
        with pytest.raises(InputError, match=message):
            open_data(f"{name}:{tmp_path}", allow_incomplete=True)


def test_seed_and_fraction_reach_the_data(tmp_path):
    touch(tmp_path, *(f"{c}/{i}.png" for c in "abcdef" for i in range(2)))
    tested = {open_data(f"folder:{tmp_path}", seed=seed, test_fraction=0.34)["test"].class_names for seed in range(9)}
    assert {len(names) for names in tested} == {2}
    assert len(tested) > 3


def test_an_incomplete_benchmark_is_accepted_where_it_is_asked_for(tmp_path):
    touch(tmp_path, *(f"{c:03}.bird/{i}.jpg" for c in (1, 2, 101) for i in range(2)))
    with pytest.raises(InputError, match="train has 2 classes and 4 images, expected 100 and 5,864"):
        open_data(f"cub200:{tmp_path}")
    assert len(open_data(f"cub200:{tmp_path}", allow_incomplete=True)["train"]) == 4


@pytest.mark.parametrize("source", ["x.npz", "embeddings:x.npz", "~/x.npz", "embeddings:~/x.npz"])
def test_an_embeddings_file_needs_no_name(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    np.savez("x.npz", embeddings=X, labels=Y)
    assert data_kind(source) == "embeddings"
    assert open_data(source).kind == "embeddings"


@pytest.mark.parametrize(
    ("source", "kind"),
    [("cub200:/x", "cub200"), ("folder:a:b", "folder"), ("glyphs", "glyphs"), ("clip.PARQUET", "embeddings"), ("x.npy", "embeddings")],
)
def test_the_kind_of_a_source(source, kind):
    assert data_kind(source) == kind


SOURCES = [
    ("cub:x", "did you mean cub200:PATH?"),
    ("glyph", "did you mean glyphs?"),
    ("glyphs:x", "did you mean glyphs?"),
    ("folder", "did you mean folder:PATH?"),
    ("folder:", "did you mean folder:PATH?"),
    (".", "did you mean folder:.?"),
    ("a b", "did you mean 'folder:a b'?"),  # as it must be typed
    ("zzz:x", "names are cub200, cars196, sop, inshop, folder, manifest, embeddings, glyphs"),
]


@pytest.mark.parametrize(("source", "message"), SOURCES)
@pytest.mark.parametrize("ask", [open_data, data_kind])
def test_an_unknown_source_is_refused_with_what_was_meant(ask, source, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b").mkdir()
    with pytest.raises(InputError, match="must be NAME:PATH, glyphs, or an embeddings file") as refusal:
        ask(source)
    assert str(refusal.value).endswith(message)


def test_training_settings_come_with_the_data():
    defaults = {name: getattr(DATA.find(name), "training_defaults", {}) for name in DATA.names}
    products = {"epochs": 100, "weight": 100.0, "omega": 0.5, "walk_temperature": 0.005, "heads_pooling": "avg", "feature_weight": 5.0}
    assert defaults == {
        "cub200": {"epochs": 150, "weight": 1000.0, "omega": 0.3, "walk_temperature": 1.0},
        "cars196": {"epochs": 150, "weight": 75.0, "omega": 0.99, "walk_temperature": 1.0},
        "sop": {**products, "ks": "1,10,100"},
        "inshop": {**products, "ks": "1,10,20,30"},
        "folder": {},
        "manifest": {},
        "embeddings": {"epochs": 40, "backbone": "features", "head_init": "projection", "lr": 1e-4, "weight": 100.0},
        "glyphs": {"epochs": 20, "backbone": "tiny-conv", "lr": 1e-3, "crop": 0.7, "flip": False, "weight": 1.0},
    }


def test_reading_the_settings_needs_no_torch():
    code = "import sys; from obdsd.catalogue import DATA; [DATA.find(name) for name in DATA.names]; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_data_set_from_outside_opens_by_its_name(tmp_path):
    @training_defaults(epochs=3)
    def points(path, seed, test_fraction):
        """Points in a text file."""
        rows = np.loadtxt(path, dtype=np.float32)
        return collect("points", Rows(rows), Y.tolist(), seed=seed, test_fraction=test_fraction)

    np.savetxt(tmp_path / "points.txt", X)
    register("data", "points", points)
    data = open_data(f"points:{tmp_path / 'points.txt'}", seed=1, test_fraction=0.34)
    assert data.kind == "embeddings"
    assert len(data["test"].class_names) == 2
    for part in data.parts.values():
        assert (part.matrix() == X[part.positions]).all()
        assert (part.classes == Y[part.positions]).all()
    assert data_kind("points:x.txt") == "points"
    assert DATA.find("points").training_defaults == {"epochs": 3}
    with pytest.raises(InputError, match="did you mean points:PATH"):
        open_data("point:x.txt")


def test_a_data_set_from_outside_may_need_no_path():
    register("data", "built-in", lambda: collect("built-in", Rows(X), Y.tolist()))
    assert open_data("built-in").name == "built-in"
    assert data_kind("built-in") == "built-in"
    with pytest.raises(InputError, match=r"did you mean built-in\?"):
        open_data("built-in:x")


def test_what_holds_for_all_data_holds_for_a_data_set_from_outside():
    """It knows nothing of vectors without a direction, nor of parts that are merged."""
    rows = X.copy()
    rows[3], rows[8] = np.nan, 0
    splits = ["train", "test"] * 6
    register("data", "spoilt", lambda: collect("spoilt", Rows(rows), Y.tolist(), splits))
    with pytest.raises(
        InputError, match=r"^spoilt: 2 of 12 vectors hold NaN or infinity, or only zeros: row 8, row 3; recompute or remove"
    ):
        open_data("spoilt")
    found = open_data("spoilt", drop_nan=True, merge=True)
    assert sum(map(len, found.parts.values())) == 10
    assert not {*found["train"].class_names} & {*found["test"].class_names}
    register("data", "broken", lambda: collect("broken", Pictures(), list("aabb"), ["train"] * 2 + ["test"] * 2))
    left = open_data("broken", skip_unreadable=True)
    assert {name: [part.name(i) for i in range(len(part))] for name, part in left.parts.items()} == {"train": ["0"], "test": ["2", "3"]}
    assert left.left_out == {"train": ["1"]}


class Pictures:
    """Items of somebody else, of which one cannot be read."""

    def read(self, position):
        if position == 1:
            raise InputError("picture 1 is lost; find it")
        return picture(position)

    def name(self, position):
        return str(position)

    def content(self, position):
        return bytes([position])
