"""`obdsd embed`: every row belongs to its file, and the file can be read by anybody."""

import csv

import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from obdsd.cli.embed import computed_before
from obdsd.data import open_data
from obdsd.data.items import read_image
from obdsd.data.transforms import evaluation_transform
from obdsd.models import Embedder
from tests.data.trees import picture


def read(path):
    """The columns as numpy or pyarrow alone see them."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    table = pyarrow.parquet.read_table(path)
    assert table.schema.field("embeddings").type == pyarrow.list_(pyarrow.float32(), 8)
    return {name: np.array(table[name].to_pylist()) for name in table.column_names}


def listed(folder):
    with (folder / "list.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["x.parquet", "x.npz"])
@pytest.mark.parametrize("workers", [0, 2])
def test_order_names_labels_and_groups_are_those_of_the_data(obdsd, made, tmp_path, name, workers):
    out = tmp_path / "new" / name
    code, printed, _ = obdsd("embed", "tiny", "manifest:list.csv", "--out", out, "--workers", workers, "--batch-size", 7)
    assert code == 0
    assert printed.startswith(f"{out}: 40 rows of length 8, ")
    assert printed.endswith(" images/s\n")
    columns, rows = read(out), listed(made)
    columns["group"] = [f"camera {group}" for group in columns["group"]]
    for column, field in (("names", "path"), ("labels", "label"), ("split", "split"), ("group", "group")):
        assert list(columns[column]) == [row[field] for row in rows]
    embedder = Embedder.load(made / "tiny")
    prepare = evaluation_transform(embedder.preprocessing)
    with torch.inference_mode():
        one_by_one = torch.cat([embedder(prepare(read_image(made / row["path"]))[None]) for row in rows])
    np.testing.assert_allclose(columns["embeddings"], one_by_one.numpy(), atol=1e-6)
    assert {part: len(items) for part, items in open_data(str(out)).parts.items()} == {"train": 16, "query": 12, "gallery": 12}
    assert obdsd("embed", "tiny", "manifest:list.csv", "--part", "gallery", "--out", out)[0] == 0
    assert list(read(out)["names"]) == [row["path"] for row in rows if row["split"] == "gallery"]


def test_rows_from_a_cache_are_those_from_the_files(obdsd, refused, made, tmp_path):
    command = ("embed", "tiny", "manifest:list.csv", "--workers", 0)
    assert obdsd(*command, "--out", tmp_path / "files.npz")[0] == 0
    for _ in range(2):  # it is built, then it is there
        code, _, told = obdsd(*command, "--out", tmp_path / "cache.npz", "--cache", tmp_path / "kept")
        assert code == 0
        assert told.endswith("images: 40 images with a shorter side of at most 32, 0 MiB\n")
        assert np.array_equal(read(tmp_path / "cache.npz")["embeddings"], read(tmp_path / "files.npz")["embeddings"])
    scored = [obdsd("evaluate", "tiny", "manifest:list.csv", *more)[1] for more in ((), ("--cache", tmp_path / "kept"))]
    assert scored[0] == scored[1] != ""
    np.savez(tmp_path / "x.npz", x=np.eye(6, dtype=np.float32), y=np.arange(6) % 3)
    line = refused("embed", "head", tmp_path / "x.npz", "--out", tmp_path / "z.npz", "--cache", tmp_path / "kept")
    assert line == f"--cache {tmp_path / 'kept'} is for images, {tmp_path / 'x.npz'} holds embeddings; leave it out"
    (made / "cut.png").write_bytes((made / "ant-train-0.png").read_bytes()[:90])
    (made / "cut.csv").write_text("path,label\ncut.png,ant\nant-train-1.png,ant\nnone.png,ant\n")
    line = refused("embed", "tiny", "manifest:cut.csv", "--out", tmp_path / "z.npz", "--cache", tmp_path / "kept")
    assert line.startswith("cut.csv: 2 of 3 images cannot be read: cut.png, none.png; ")


def test_rows_are_embedded_too_and_have_no_group_if_they_had_none(obdsd, made, tmp_path):
    x = np.random.default_rng(1).normal(size=(20, 6)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x, y=np.arange(20) % 5)
    assert obdsd("embed", "head", tmp_path / "x.npz", "--out", tmp_path / "z.npz")[1].endswith(" embeddings/s\n")
    columns = read(tmp_path / "z.npz")
    assert sorted(columns) == ["embeddings", "labels", "names", "split"]
    expected = Embedder.load(made / "head")(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(columns["embeddings"], expected, atol=1e-6)
    assert list(columns["names"][:2]) == ["row 0", "row 1"]


@pytest.mark.parametrize("name", ["x.parquet", "x.npz"])
def test_a_full_disk_leaves_the_old_file_whole(refused, full_disk, tmp_path, name):
    (tmp_path / name).write_text("precious")
    line = refused("embed", "tiny", "manifest:list.csv", "--out", tmp_path / name)
    assert line.startswith(f"{tmp_path / name}: cannot be written (No space left on device); make room")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize("workers", [0, 2])
def test_unreadable_images_are_one_line_from_any_process(obdsd, refused, tmp_path, workers):
    for number, name in enumerate(f"{c}/{i}.png" for c in "abcd" for i in range(2)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture(number).save(tmp_path / name)
    for name in ("a/0.png", "c/1.png"):
        (tmp_path / name).write_bytes(b"no image")
    command = ("embed", "tiny", f"folder:{tmp_path}", "--out", tmp_path / "x.npz", "--workers", workers)
    line = refused(*command)
    remedy = "replace or remove them, or leave them out with --skip-unreadable; the first: "
    assert line.startswith(f"{tmp_path}: 2 of 8 images cannot be read: ")
    assert {*line.partition("; ")[0].partition("read: ")[2].split(", ")} == {"a/0.png", "c/1.png"}
    assert f"; {remedy}{tmp_path}/" in line
    assert not (tmp_path / "x.npz").exists()
    code, _, told = obdsd(*command, "--skip-unreadable")
    assert (code, told.partition("read: ")[0]) == (0, f"obdsd: {tmp_path}: 2 of 8 images are left out, as they cannot be ")
    assert sorted(read(tmp_path / "x.npz")["names"]) == sorted({f"{c}/{i}.png" for c in "abcd" for i in range(2)} - {"a/0.png", "c/1.png"})


def test_what_has_no_labels_is_embedded(obdsd, refused, tmp_path):
    """A flat folder, a manifest and a file without labels: rows and names are written, no labels; there is nothing to score."""
    for i in range(3):
        picture(i, size=(32, 32)).save(tmp_path / f"{i}.png")
    (tmp_path / "list.csv").write_text("File\n0.png\n1.png\n2.png\n")
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32), names=[f"{i}.png" for i in range(3)])
    for model, data in (("tiny", f"folder:{tmp_path}"), ("tiny", f"manifest:{tmp_path / 'list.csv'}"), ("head", tmp_path / "rows.npz")):
        assert obdsd("embed", model, data, "--out", tmp_path / "z.npz", "--workers", 0)[0] == 0
        columns = read(tmp_path / "z.npz")
        assert sorted({*columns} - {"obdsd_photos", "obdsd_made_by"}) == ["embeddings", "names"]
        assert list(columns["names"]) == ["0.png", "1.png", "2.png"]
        assert "scoring needs labels, but it has no " in refused("evaluate", model, data)
        assert "scoring needs labels, but it has no column label" in refused("evaluate", tmp_path / "z.npz")
        assert "training needs labels, but it has no " in refused(
            "train", data, "--out", tmp_path / "run", "--backbone", "features" if model == "head" else "tiny-conv"
        )
        assert not (tmp_path / "run").exists()
        (tmp_path / "z.npz").unlink()


def test_one_class_and_no_training_part_are_embedded_and_what_can_be_scored_is(obdsd, refused, tmp_path):
    x = np.random.default_rng(1).normal(size=(12, 6)).astype(np.float32)
    cases = {
        "one class": ({"y": ["a"] * 12}, "--part test is not there"),
        "two classes": ({"y": ["a", "b"] * 6}, "there is one class only"),
        "no training part": ({"y": ["a", "b"] * 6, "split": ["test"] * 12}, ""),
        "query and gallery": ({"y": ["a", "b"] * 6, "split": ["query"] * 4 + ["gallery"] * 8}, ""),
        "classes on both sides": ({"y": ["a", "b"] * 6, "split": ["train"] * 4 + ["test"] * 8}, ""),
    }
    for name, (columns, refusal) in cases.items():
        np.savez(tmp_path / "x.npz", x=x, **columns)
        assert obdsd("embed", "head", tmp_path / "x.npz", "--out", tmp_path / "z.npz")[0] == 0, name
        assert len(read(tmp_path / "z.npz")["embeddings"]) == 12
        command = ("evaluate", "head", tmp_path / "x.npz", "--ks", "1,2", "--no-clusters")
        if refusal:
            assert refusal in refused(*command)
        else:
            assert obdsd(*command)[0] == 0, name
    np.savez(tmp_path / "x.npz", x=x, y=["a", "b"] * 6)
    assert obdsd("evaluate", "head", tmp_path / "x.npz", "--test-fraction", "1")[1].startswith(
        f"{tmp_path / 'x.npz'}: test of 12 items, 2 classes"
    )


@pytest.mark.parametrize(
    ("size", "resize", "pooling"), [(None, None, None), (48, None, None), (24, 40, None), (32, None, "avg+max"), (20, 20, "avg")]
)
def test_a_backbone_sees_images_at_the_size_that_is_asked_for(obdsd, made, tmp_path, size, resize, pooling):
    torch.save(Embedder("tiny-conv", head="none", seed=4).backbone.state_dict(), tmp_path / "weights.pth")
    asked = {"--size": size, "--resize": resize, "--pooling": pooling}
    flags = [word for flag, value in asked.items() if value is not None for word in (flag, value)]
    model, out = f"tiny-conv:{tmp_path / 'weights.pth'}", tmp_path / "x.npz"
    assert obdsd("embed", model, "manifest:list.csv", "--out", out, "--workers", 0, "--device", "cpu", *flags)[0] == 0
    backbone = Embedder("tiny-conv", head="none", seed=4).backbone.eval()
    side, shorter = size or 32, resize or size or 32  # all images are 32×32
    edge = (shorter - side) // 2
    for name, row in zip(*(read(out)[column] for column in ("names", "embeddings")), strict=True):
        image = Image.open(made / str(name)).resize((shorter, shorter), Image.Resampling.BILINEAR)
        pixels = np.asarray(image, dtype=np.float32)[edge : edge + side, edge : edge + side] / 127.5 - 1
        with torch.no_grad():
            found = backbone(torch.from_numpy(pixels).permute(2, 0, 1)[None])[0].flatten(1)
        pooled = found.mean(1) + (found.amax(1) if pooling == "avg+max" else 0)
        np.testing.assert_allclose(row, (pooled / pooled.norm()).numpy(), atol=2e-3)


REFUSED = [
    (["--out", "x.csv"], "--out 'x.csv' must end in .parquet or .npz; rename it"),
    ([], "--out must be given: obdsd embed MODEL DATA --out TEXT [options]"),
    (["--out", "list.csv/x.npz"], "list.csv/x.npz: cannot be written ("),
    (["--out", "tiny/folder.npz"], "tiny/folder.npz: cannot be written (it is a folder); choose another place"),
    (["--out", "."], "--out '.' must end in"),
    (["--out", "x.npz", "--batch-size", "0"], "--batch-size 0 must be 1 or more"),
    (["--out", "x.npz", "--workers", "-1"], "--workers -1 must be 0 or more"),
    (["--out", "x.npz", "--split-seed", "-1"], "--split-seed -1 must be from 0 to less than 2147483647"),
    (["--out", "x.npz", "--part", "test"], "list.csv: there is no part 'test'; it has train, query, gallery"),
    (["--out", "x.npz", "--device", "cuad"], "--device 'cuad' cannot be used ("),
    (["--out", "x.npz", "--size", "0"], "--size 0 must be 1 or more"),
    (["--out", "x.npz", "--size", "64"], "--size 64 is for BACKBONE:WEIGHTS, MODEL tiny has its own; leave it out"),
    (["--out", "x.npz", "--resize", "64"], "--resize 64 is for BACKBONE:WEIGHTS, MODEL tiny has its own; leave it out"),
    (["--out", "x.npz", "--pooling", "avg"], "--pooling avg is for BACKBONE:WEIGHTS, MODEL tiny has its own; leave it out"),
    (["--out", "x.npz", "--pooling", "max"], "--pooling max must be one of avg, avg+max, gem, token"),
]


@pytest.mark.parametrize(("arguments", "line"), REFUSED, ids=[line[:30] for _, line in REFUSED])
def test_mistakes_are_named_before_any_work(refused, made, arguments, line):
    (made / "tiny" / "folder.npz").mkdir(exist_ok=True)
    assert refused("embed", "tiny", "manifest:list.csv", *arguments).startswith(line)
    assert not (made / "x.npz").exists()


def test_a_model_in_the_place_of_the_data_is_named(refused, made):
    assert refused("embed", "manifest:list.csv", "tiny", "--out", "x.npz").startswith("DATA 'tiny' is a model; the model comes first")


def test_what_a_backbone_cannot_see_is_one_line(refused, tmp_path):
    command = ("embed", "tiny-conv:none", "manifest:list.csv", "--out", tmp_path / "x.npz")
    assert refused(*command, "--size", "48", "--resize", "40") == "--resize 40 is less than --size 48; enlarge it"
    assert refused(*command, "--size", "99999").startswith("--size 99999 must be a whole number in 1..4096")
    assert refused(*command, "--pooling", "token").startswith("--pooling token needs a class token, tiny-conv has none")


@pytest.mark.parametrize(("head", "end"), [("none", ""), ("linear", "; only the head is asked")])
def test_features_that_were_computed_before_are_told(monkeypatch, capsys, head, end):
    monkeypatch.setattr("obdsd.training.features.known_rows", lambda *given: np.ones((2, 8), dtype=np.float32))
    assert len(computed_before(Embedder("tiny-conv", head=head), None, None, None)) == 2
    assert capsys.readouterr().err == f"obdsd: the features of these images were computed before and are kept{end}\n"
