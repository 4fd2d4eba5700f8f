"""Every reader of data, met with valid files that were then damaged: it reads them or refuses them in one line."""

import io
import os
import shutil
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from scipy.io import savemat

from obdsd.data.cars196 import cars196
from obdsd.data.cub200 import cub200
from obdsd.data.embeddings import embeddings
from obdsd.data.folders import folder
from obdsd.data.inshop import inshop
from obdsd.data.items import read_image
from obdsd.data.manifests import manifest
from obdsd.data.sop import sop
from tests.data.test_cars196 import annotations, cell
from tests.data.trees import picture, touch, write
from tests.fuzzing import FIELDS, damaged, fuzz, only_refuses

X, Y = np.arange(1, 25, dtype=np.float32).reshape(12, 2), np.repeat(["a", "b", "c", "d", "e", "f"], 2)
SPLIT = ["train"] * 6 + ["query", "gallery"] * 3
NAMES = [f"img/{i}.png" for i in range(12)]
MANIFEST = {"path": NAMES, "label": Y, "split": SPLIT, "group": [1, 2] * 6}
MANIFEST |= {corner: [value] * 12 for corner, value in (("x1", 1), ("y1", 2), ("x2", 5), ("y2", 7))}


def content_of(save, *arguments, **named) -> bytes:
    save(file := io.BytesIO(), *arguments, **named)
    return file.getvalue()


def parquet(columns, **how) -> bytes:
    return content_of(lambda file: pa.parquet.write_table(pa.table(columns), file, **how))


def used(load):
    """Open the data and ask all that a training asks of them."""

    def read(path):
        parts = load(path).parts.values()
        for part in parts:
            part.fingerprint()
        for part in parts:
            part[0]

    return read


VECTORS = {"embeddings": X.tolist(), "labels": Y, "split": SPLIT, "names": NAMES}
ARRAYS = {name: np.asarray(column) for name, column in {**VECTORS, "embeddings": X}.items()}
MEMBERS = {f"{name}.npy": content_of(np.save, array) for name, array in ARRAYS.items()}
MAT = {"class_names": cell([f"car {i}" for i in range(1, 101)])}
MAT["annotations"] = annotations([(f"car_ims/{i}.jpg", label) for i, label in enumerate([1, 1, 2, 99, 99, 100])])
MATS = {compressed: content_of(savemat, MAT, do_compression=compressed) for compressed in (False, True)}


PICTURE = content_of(picture().save, "png")


def with_pictures(root, names):
    """So that what is not damaged can be read to the end."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(PICTURE)
    return root


@fuzz
@given(damaged(content_of(lambda file: pa.csv.write_csv(pa.table(MANIFEST), file))))
def test_fuzzed_manifests(tmp_path, content):
    (with_pictures(tmp_path, NAMES) / "list.csv").write_bytes(content)
    assert only_refuses(used(manifest), tmp_path / "list.csv")


@fuzz
@given(st.one_of(damaged(parquet(MANIFEST)), damaged(parquet(MANIFEST, compression="none", use_dictionary=False))))
def test_fuzzed_parquet_manifests(tmp_path, content):
    (with_pictures(tmp_path, NAMES) / "list.parquet").write_bytes(content)
    assert only_refuses(used(manifest), tmp_path / "list.parquet")


@fuzz
@given(st.one_of(damaged(parquet(VECTORS)), damaged(parquet(VECTORS, compression="none", use_dictionary=False))))
def test_fuzzed_parquet_embeddings(tmp_path, content):
    (tmp_path / "x.parquet").write_bytes(content)
    assert only_refuses(used(embeddings), tmp_path / "x.parquet")


WIDE = {**{f"f{i}": X[:, i] for i in range(2)}, "label": Y, "split": SPLIT}
TENSORS = {"embeddings": torch.from_numpy(X), "labels": torch.repeat_interleave(torch.arange(6), 2)}
PT = content_of(lambda file: torch.save({**TENSORS, "split": SPLIT, "names": NAMES}, file))


@fuzz
@given(st.one_of(damaged(parquet(WIDE)), damaged(parquet(WIDE, compression="none", use_dictionary=False))))
def test_fuzzed_wide_parquet(tmp_path, content):
    (tmp_path / "x.parquet").write_bytes(content)
    assert only_refuses(used(embeddings), tmp_path / "x.parquet")


@fuzz
@given(damaged(save(TENSORS)))
def test_fuzzed_safetensors(tmp_path, content):
    (tmp_path / "x.safetensors").write_bytes(content)
    assert only_refuses(used(embeddings), tmp_path / "x.safetensors")


@fuzz
@given(st.data(), st.sampled_from(["a member", "the archive"]))
def test_fuzzed_pt(tmp_path, data, which):
    content = PT
    if which == "a member":  # damaged before its checksum is taken
        with zipfile.ZipFile(io.BytesIO(PT)) as whole, zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
            spoilt = data.draw(st.sampled_from(whole.namelist()))
            for name in whole.namelist():
                archive.writestr(name, data.draw(damaged(whole.read(name))) if name == spoilt else whole.read(name))
        content = file.getvalue()
    (tmp_path / "x.pt").write_bytes(content if which == "a member" else data.draw(damaged(PT)))
    assert only_refuses(used(embeddings), tmp_path / "x.pt")


@fuzz
@given(damaged(content_of(np.save, X)), st.booleans())
def test_fuzzed_npy(tmp_path, content, is_labels):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "x.labels.npy", Y)
    (tmp_path / ("x.labels.npy" if is_labels else "x.npy")).write_bytes(content)
    assert only_refuses(used(embeddings), tmp_path / "x.npy")


@fuzz
@given(st.data(), st.sampled_from([*MEMBERS, "the archive"]), st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
def test_fuzzed_npz(tmp_path, data, which, how):
    with zipfile.ZipFile(file := io.BytesIO(), "w", how) as archive:  # a member is damaged before its checksum is taken
        for name, content in MEMBERS.items():
            archive.writestr(name, data.draw(damaged(content)) if name == which else content)
    (tmp_path / "x.npz").write_bytes(file.getvalue() if which in MEMBERS else data.draw(damaged(file.getvalue())))
    assert only_refuses(used(embeddings), tmp_path / "x.npz")


@pytest.mark.filterwarnings("ignore")  # Pillow warns of much that it then reads
@pytest.mark.parametrize("suffix", ["png", "jpeg", "gif", "webp", "tiff", "bmp"])
@fuzz
@given(data=st.data())
def test_fuzzed_images(tmp_path, suffix, data):
    (tmp_path / "x").write_bytes(data.draw(damaged(content_of(picture().save, suffix))))
    assert only_refuses(read_image, tmp_path / "x")


WORDS = [field for field in FIELDS if field and "/" not in field and "\0" not in field and field != ".." and len(field) < 200]
KINDS = st.sampled_from(["picture"] * 9 + ["file", "pipe", "link", "loop", "folder"])


@fuzz
@given(st.lists(st.tuples(st.sampled_from(["", "train/", "test/"]), st.sampled_from([*WORDS, *"abcdef"]), KINDS), max_size=20))
def test_fuzzed_class_folders(tmp_path, entries):
    root = tmp_path / "photos"
    shutil.rmtree(root, ignore_errors=True)
    for number, (split, name, kind) in enumerate(entries):
        place = root / f"{split}{name}"
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{number}{name}.png"
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "link" | "loop":
                path.symlink_to("nowhere" if kind == "link" else path.name)
            case "folder":
                path.mkdir()
            case "picture":
                path.write_bytes(PICTURE)
            case _:
                path.touch()
    assert only_refuses(used(folder), root)


def cub(root):
    paths = [f"{c:03}.bird/{i}.jpg" for c in (1, 2, 101, 102) for i in range(2)]
    touch(root, *(f"images/{path}" for path in paths))
    write(root / "classes.txt", *(f"{c} {c:03}.bird" for c in (1, 2, 101, 102)))
    write(root / "images.txt", *(f"{i} {path}" for i, path in enumerate(paths)))
    write(root / "image_class_labels.txt", *(f"{i} {int(path[:3])}" for i, path in enumerate(paths)))
    return cub200, ["classes.txt", "images.txt", "image_class_labels.txt"]


def cars(root, compressed):
    touch(root, *(f"car_ims/{i}.jpg" for i in range(6)))
    (root / "cars_annos.mat").write_bytes(MATS[compressed])
    return cars196, ["cars_annos.mat"]


def ebay(root):
    for part, labels in (("train", "1122"), ("test", "3344")):
        paths = [f"bike/{label}_{i}.jpg" for i, label in enumerate(labels)]
        touch(root, *paths)
        lines = [f"{i} {label} 1 {path}" for i, (label, path) in enumerate(zip(labels, paths, strict=True))]
        write(root / f"Ebay_{part}.txt", "image_id class_id super_class_id path", *lines)
    return sop, ["Ebay_train.txt", "Ebay_test.txt"]


def shop(root):
    rows = [(f"img/{label}/{i}.jpg", label, split) for i, (label, split) in enumerate(zip(Y, SPLIT, strict=True))]
    touch(root, *(path for path, *_ in rows))
    write(root / "list_eval_partition.txt", "12", "image_name item_id evaluation_status", *map("   ".join, rows))
    return inshop, ["list_eval_partition.txt"]


LAYOUTS = {"cub": cub, "cars": lambda root: cars(root, False), "packed cars": lambda root: cars(root, True), "sop": ebay, "inshop": shop}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
@fuzz
@given(data=st.data())
def test_fuzzed_benchmarks(tmp_path, make, data):
    load, lists = make(tmp_path)
    with_pictures(tmp_path, tmp_path.rglob("*.jpg"))
    name = data.draw(st.sampled_from(lists))
    (tmp_path / name).write_bytes(data.draw(damaged((tmp_path / name).read_bytes())))
    assert only_refuses(used(lambda path: load(path, allow_incomplete=True)), tmp_path)


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_what_is_fuzzed_is_good_before(tmp_path, make):
    """Else damage would be refused for another reason."""
    load, _ = make(tmp_path)
    with_pictures(tmp_path, [*NAMES, *tmp_path.rglob("*.jpg")])
    used(lambda path: load(path, allow_incomplete=True))(tmp_path)
    for name, content in (("m.parquet", parquet(MANIFEST)), ("x.parquet", parquet(VECTORS))):
        (tmp_path / name).write_bytes(content)
    for name, content in (("w.parquet", parquet(WIDE)), ("x.pt", PT), ("x.safetensors", save(TENSORS))):
        (tmp_path / name).write_bytes(content)
        used(embeddings)(tmp_path / name)
    used(manifest)(tmp_path / "m.parquet")
    used(embeddings)(tmp_path / "x.parquet")
