import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obdsd.data.collection import collect, collect_unlabelled, grouped, loader_workers
from obdsd.data.items import ImageFiles, Rows
from obdsd.errors import InputError

NAMES = ["ant", "bee", "cat", "dog", "eel", "fox"]


def made(per_class: int = 3, splits=None, **options):
    labels = [name for name in NAMES for _ in range(per_class)]
    rows = np.arange(2 * len(labels), dtype=np.float32).reshape(-1, 2)
    return collect("zoo", Rows(rows), labels, splits, **options)


def test_items_come_with_their_label_and_index():
    splits = ["train"] * 9 + ["test"] * 9
    test = made(splits=splits)["test"]
    item, label, index = test[4]
    assert item.tolist() == [26.0, 27.0]  # row 13 of the whole
    assert (test.class_names[label], index) == ("eel", 4)
    assert test.name(4) == "row 13"
    assert test.replace(transform=lambda row: row * 2)[4][0].tolist() == [52.0, 54.0]


@given(st.integers(0, 1000), st.sampled_from([0.2, 0.5, 0.6]))
def test_without_a_split_whole_classes_are_drawn_with_a_seed(seed, fraction):
    one, same = made(seed=seed, test_fraction=fraction), made(seed=seed, test_fraction=fraction)
    assert one["test"].class_names == same["test"].class_names
    assert set(one["train"].class_names) | set(one["test"].class_names) == set(NAMES)
    assert len(one["test"].class_names) == round(6 * fraction)
    assert sorted(one["train"].classes.tolist() + one["test"].classes.tolist()) == sorted(NAMES * 3)
    assert len({made(seed=seed + i)["test"].class_names for i in range(20)}) > 5


@given(st.integers(0, 1000), st.integers(2, 6))
def test_folds_hold_every_training_class_out_once(seed, k):
    zoo = collect("zoo", Rows(np.zeros((20, 2), np.float32)), [str(i // 2) for i in range(20)], ["train"] * 14 + ["test"] * 6)
    held = [zoo.hold_out(fold=(i, k), seed=seed)["val"].class_names for i in range(k)]
    assert sorted(name for names in held for name in names) == sorted(zoo["train"].class_names)
    for i in range(k):
        split = zoo.hold_out(fold=(i, k), seed=seed)
        assert set(split["train"].class_names) == set(zoo["train"].class_names) - set(held[i])
        assert sorted(split["train"].classes.tolist() + split["val"].classes.tolist()) == sorted(zoo["train"].classes.tolist())
        assert split["test"] is zoo["test"]
    assert len(zoo.hold_out(fraction=0.3, seed=seed)["val"].class_names) == 2


def test_query_and_gallery_share_one_numbering():
    splits = ["train"] * 6 + ["query", "gallery", "gallery"] * 3 + ["gallery"] * 3
    zoo = made(splits=splits)
    assert zoo["query"].class_names == zoo["gallery"].class_names == ("cat", "dog", "eel", "fox")
    assert zoo["query"].classes.tolist() == ["cat", "dog", "eel"]


def test_rows_in_the_order_of_the_part():
    train = made(splits=["test"] * 9 + ["train"] * 9)["train"]
    picked = train.take(np.array([4, 0]))
    assert (picked.is_rows, picked.matrix().dtype) == (True, np.float32)
    assert picked.matrix().tolist() == [[26.0, 27.0], [18.0, 19.0]]
    assert picked.classes.tolist() == ["eel", "dog"]


def photos(root):
    labels = [name for name in NAMES for _ in range(2)]
    paths = [f"{i}.png" for i in range(12)]
    for path in paths:
        (root / path).write_bytes(b"ab")
    return collect("photos", ImageFiles(root, paths), labels)


def test_images_and_rows_are_told_apart(tmp_path):
    assert (photos(tmp_path).kind, made().kind) == ("images", "embeddings")
    assert not photos(tmp_path)["train"].is_rows
    with pytest.raises(ValueError, match="ImageFiles are no rows of a matrix; embed them with a model first"):
        photos(tmp_path)["train"].matrix()


def test_a_fingerprint_changes_with_names_labels_order_and_contents(tmp_path):
    train = photos(tmp_path)["train"]
    rows = made()["train"]
    assert rows.fingerprint() == made()["train"].fingerprint()
    seen = [
        train.fingerprint(),
        train.take(np.arange(len(train))[::-1]).fingerprint(),
        train.replace(labels=train.labels[::-1]).fingerprint(),
        train.replace(class_names=tuple(name.upper() for name in train.class_names)).fingerprint(),
        rows.fingerprint(),
        rows.replace(items=Rows(rows.items.matrix + 1)).fingerprint(),
        rows.replace(items=Rows(rows.items.matrix, np.arange(18).astype(str))).fingerprint(),
    ]
    for content in (b"abc", b"ba"):  # larger; of the same size
        (tmp_path / train.name(0)).write_bytes(content)
        seen.append(train.fingerprint())
    seen.append(rows.replace(groups=rows.labels).fingerprint())
    assert len(set(seen)) == len(seen)
    (tmp_path / train.name(0)).unlink()
    with pytest.raises(ValueError, match="no such file"):
        train.fingerprint()


def test_the_fingerprint_of_rows_is_the_one_by_which_records_know_their_data():
    train = made()["train"]
    names = "\0".join(train.name(index) for index in range(len(train)))
    parts = ["\0".join(train.class_names).encode(), train.labels.tobytes(), names.encode(), train.matrix().tobytes()]
    assert train.fingerprint() == hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()


def test_processes_read_image_files_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    assert loader_workers(None, photos(tmp_path)["train"]) == 3
    assert loader_workers(None, made()["train"]) == 0
    assert loader_workers(5, made()["train"]) == 5
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 2**12, "SC_PHYS_PAGES": 4 * 2**18}.get)
    with pytest.raises(InputError, match=r"^workers=9 is more processes than 3 cores and 4 GiB of memory carry; try 8 or fewer$"):
        loader_workers(9, made()["train"])
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert loader_workers(None, photos(tmp_path)["train"]) == 8
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 2**12, "SC_PHYS_PAGES": 2**26}.get)
    assert loader_workers(256, made()["train"]) == 256
    with pytest.raises(InputError, match=r"^workers=257 is more processes than 64 cores and 256 GiB of memory carry"):
        loader_workers(257, made()["train"])


def test_items_without_a_group_are_in_none():
    assert grouped(["", "b", "", "a", "b"]).tolist() == [3, 2, 4, 1, 2]
    assert grouped(["nan", "1.0", "nan"]).tolist() == [2, 0, 3]


def test_classes_are_split_as_asked_to_the_last():
    assert [(share, list(made(test_fraction=share).parts)) for share in (0, 0.01, 1)] == [(0, ["train"]), (0.01, ["train"]), (1, ["test"])]
    assert [len(part.class_names) for part in made(test_fraction=0.9).parts.values()] == [1, 5]


def test_merged_parts_are_split_by_class_as_if_they_had_none():
    splits = ["train", "test", "val"] * 6
    whole, again = made(seed=3, test_fraction=0.34), made(splits=splits).merged(3, 0.34)
    assert {name: part.fingerprint() for name, part in again.parts.items()} == {n: part.fingerprint() for n, part in whole.parts.items()}
    groups = np.arange(18) % 4
    joined, split_of = made(splits=splits, groups=groups).joined()
    assert (joined.groups.tolist(), split_of.tolist()) == (groups.tolist(), splits)
    assert joined.classes.tolist() == [name for name in NAMES for _ in range(3)]


def test_items_without_labels_have_parts_and_no_classes():
    rows = Rows(np.arange(12, dtype=np.float32).reshape(-1, 2))
    zoo = collect_unlabelled("zoo", rows, ["query"] * 2 + ["gallery"] * 4, "has none")
    assert [(name, len(part), part.unlabelled) for name, part in zoo.parts.items()] == [
        ("query", 2, "has none"),
        ("gallery", 4, "has none"),
    ]
    assert list(zoo.merged().parts) == ["test"]
    assert zoo.merged()["test"].matrix().tolist() == rows.matrix.tolist()


BAD = [
    (lambda: collect("zoo", Rows(np.zeros((0, 2), np.float32)), []), "zoo: holds no items; check the path"),
    (lambda: collect_unlabelled("zoo", Rows(np.zeros((0, 2), np.float32)), [], "has none"), "zoo: holds no items; check the path"),
    (lambda: made(splits=["train"] * 9 + ["trian"] * 9), "zoo: split='trian' is unknown; use one of train, val, test"),
    (lambda: made(test_fraction=1.1), "zoo: test_fraction=1.1 must lie from 0, all classes train, to 1, all test; try 0.5"),
    (lambda: made(test_fraction=float("nan")), "zoo: test_fraction=nan must lie from 0"),
    (lambda: made().hold_out(fold=(3, 3)), r"fold=\(3, 3\) must be \(i, k\) with 0 <= i < k"),
    (lambda: made().hold_out(fold=(0, 9)), r"fold=\(0, 9\) must be"),
    (lambda: made().hold_out(fraction=0.99), "fraction=0.99 must leave classes on both sides, of 3; try 0.2"),
    (lambda: made().hold_out(fraction=0.0), "fraction=0.0 must leave classes"),
    (lambda: made().hold_out(), "fraction=None, fold=None: give one of the two"),
    (lambda: made()["query"], "zoo: there is no part 'query'; it has train, test"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_collections_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
