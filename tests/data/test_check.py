import numpy as np
import pytest
from PIL import Image

from obdsd.data import open_data
from obdsd.data.check import check, check_scorable, check_trainable, scored_parts
from obdsd.data.collection import Collection, collect_unlabelled, split_parts
from obdsd.data.folders import SUFFIXES
from obdsd.data.items import Rows
from tests.data.trees import picture, refused

SPLIT = (("train", "ab"), ("test", "de"))


@pytest.fixture
def photos(tmp_path):
    for number, name in enumerate(["train/a/0", "train/a/1", "train/b/0", "train/b/1", "train/c/0", "test/d/0", "test/d/1", "test/e/0"]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        picture(number).save(tmp_path / f"{name}.png")
    return tmp_path


def test_damage_and_copies_across_the_line_are_named(photos):
    counted = []
    assert check(open_data(f"folder:{photos}"), counted.append) == ([], [], 0)
    assert sum(counted) == 8
    (photos / "train/a/0.png").write_bytes((photos / "train/a/0.png").read_bytes()[:900])
    with Image.open(photos / "train/b/1.png") as image:  # the same pixels in another file format
        image.save(photos / "test/d/copy.bmp")
    (unreadable, crossing), remarks, count = check(open_data(f"folder:{photos}"))
    assert unreadable.startswith(f"unreadable: {photos}/train/a/0.png: cannot be read as an image")
    assert crossing == "same content in train and test: train/b/1.png = test/d/copy.bmp"  # as they are called on the disk
    assert (remarks, count) == ([], 1)


def test_what_is_no_problem_is_a_remark(photos):
    (photos / "train/a/again.png").write_bytes((photos / "train/a/1.png").read_bytes())
    (photos / "test/e/twin.png").write_bytes((photos / "test/d/1.png").read_bytes())
    (photos / "train/a/notes.txt").touch()
    (photos / "train/b/clip.mov").touch()
    (photos / "test/none").mkdir()
    picture(9).save(photos / "test/loose.png")
    (photos / "old").mkdir()
    problems, remarks, _ = check(open_data(f"folder:{photos}"))
    assert problems == []
    assert remarks == [
        "folders beside the parts are not used: 1, old",
        "class folders without images are not used: 1, test/none",
        "1 image beside the class folders is left out: test/loose.png",
        f"1 .txt and 1 .mov are not read; formats are {', '.join(SUFFIXES)}",
        "same content twice in train: 1, train/a/1.png = train/a/again.png",
        "same content twice in test: 1, test/d/1.png = test/e/twin.png",
    ]


def test_a_box_beyond_its_image_is_named(photos):
    lines = [
        f"{split}/{name}/{i}.png,{name},{split},0,0,{41 if name == 'd' and i else 40},30"
        for split, names in SPLIT
        for name in names
        for i in (0, 1)
    ]
    picture(20).save(photos / "test/e/1.png")
    (photos / "list.csv").write_text("\n".join(["path,label,split,x1,y1,x2,y2", *lines]))
    (problem,), remarks, _ = check(open_data(f"manifest:{photos / 'list.csv'}"))
    assert problem.startswith(f"unreadable: {photos}/test/d/1.png: box=(0, 0, 41, 30) reaches beyond the image of 40 x 30 pixels")
    assert remarks == []


def test_embeddings_are_checked_too(tmp_path):
    rows = np.arange(24, dtype=np.float32).reshape(12, 2)
    rows[11] = rows[0]
    rows[1] = rows[2]
    for split, problem in (("test", "same content in train and test: row 0 = row 11"), ("val", "cannot be scored: ")):
        np.savez(tmp_path / "x.npz", x=rows, y=np.repeat(np.arange(6), 2), split=["train"] * 6 + [split] * 6)
        problems, remarks, _ = check(open_data(str(tmp_path / "x.npz")))
        assert [found.startswith(problem) for found in problems] == [True]
        assert remarks == ["same content twice in train: 1, row 1 = row 2"]


def parts(splits, labels, groups=None, names=None, contents=None):
    """A letter for the split of each item, and one for its class; for its name and its content too, unless they are all different."""
    split_of = {"r": "train", "v": "val", "t": "test", "q": "query", "g": "gallery"}
    content = np.arange(len(splits)) if contents is None else np.array([ord(letter) for letter in contents])
    rows = Rows(content[:, None].astype(np.float32), None if names is None else np.array(list(names)))
    return split_parts("zoo", rows, list(labels), [split_of[s] for s in splits], None if groups is None else np.array(groups))


def test_query_and_gallery_are_scored_where_the_data_have_both():
    assert list(scored_parts("zoo", parts("ttqg", "aaaa"))) == ["gallery", "query"]
    assert list(scored_parts("zoo", parts("ttq", "aaa"))) == ["test"]
    assert list(scored_parts("zoo", parts("vtqg", "aaaa"), "val")) == ["val"]


NONE = collect_unlabelled("zoo", Rows(np.ones((3, 2), np.float32)), ["train", "test", "test"], "has no column label")
SCORABLE = [("tttt", "aabc"), ("qgg", "aab"), ("ttt", "aab", [0, 1, 0]), ("qqgg", "aaab", [0, 0, 1, 0])]
NOT = [
    (parts("ttt", "aaa"), "zoo: test: there is one class only ('a'); retrieval needs 2 or more to tell apart"),
    (parts("ttt", "abc"), "zoo: test: no query has another item of its class to find; give classes of 2 items or more"),
    (parts("ttt", "aab", [0, 0, 1]), "zoo: test: no query has another item"),
    (parts("qqg", "aab"), "zoo: gallery and query: no query has another item"),
    (parts("qgg", "aab", [0, 0, 1]), "zoo: gallery and query: no query has another item"),
    (parts("tttt", "aabb", names="xyzx"), "zoo: test holds 'x' 2 times; an item that repeats finds itself, keep one"),
    (parts("qgg", "aab", names="xxy"), "zoo: gallery and query: no query has another item"),
    (parts("qggg", "aaab", [0, 1, 1, 1], "xxyz"), "zoo: query and gallery hold 'x' in different groups; give it one group, so that it"),
    (NONE.parts, "zoo: scoring needs labels, but it has no column label"),
    (parts("rrq", "aab"), "zoo: part=test is not there; it has train, query, choose one of these or split otherwise"),
]


UNFIT = [
    (
        Collection("zoo", parts("rrrt", "aabb")),
        "zoo: train and test share 1 classes (b); classes of the test must not train; --merge joins all",
    ),
    (Collection("zoo", parts("rrrvvt", "aabccc")), "zoo: val and test share 1 classes (c)"),
    (Collection("zoo", parts("rrrvvq", "aabccc")), "zoo: val and query share 1 classes (c)"),
    (
        Collection("zoo", parts("rrt", "aab")),
        "zoo: train has one class only ('a'); a metric needs 2 or more to compare, add classes or make",
    ),
    (Collection("zoo", parts("rrt", "abc")), "zoo: no training class has 2 items"),
    (Collection("zoo", parts("qgg", "aab")), "zoo: training needs a part train, but it has query, gallery alone; mark items as train"),
    (NONE, "zoo: training needs labels, but it has no column label"),
]


@pytest.mark.parametrize(("collection", "message"), UNFIT, ids=[message[:40] for _, message in UNFIT])
def test_what_cannot_be_trained_on_is_refused_and_named_by_a_check(collection, message):
    with refused(message):
        check_trainable(collection)
    assert any(problem.startswith(f"cannot be trained on: {message}") for problem in check(collection).problems)


@pytest.mark.parametrize("table", SCORABLE)
def test_what_can_be_scored(table):
    made = parts(*table)
    assert check_scorable("zoo", made) == scored_parts("zoo", made)


SAME = [  # names and contents of three queries, of classes a, a, b, and of a gallery of a, a, a, b; what each query leaves out of it
    ("xyzxuvw", None, [{0}, set(), set()]),
    (None, "xyzuvyw", [set(), {2}, set()]),
    ("xyzxuvw", "stzmntw", [{0}, {2}, set()]),
    ("xyzxuvw", "stzmnsw", [{0, 2}, set(), set()]),
    ("xyzuvwx", None, [set(), set(), set()]),  # the name is that of an item of another class
]


@pytest.mark.parametrize(("names", "contents", "left_out"), SAME)
def test_an_item_of_both_query_and_gallery_never_finds_itself(names, contents, left_out):
    gallery, query = check_scorable("zoo", parts("qqqgggg", "aabaaab", None, names, contents)).values()
    if gallery.groups is None:
        assert left_out == [set()] * 3
    else:
        ignored = (query.classes[:, None] == gallery.classes) & (query.groups[:, None] == gallery.groups)
        assert [set(np.flatnonzero(row).tolist()) for row in ignored] == left_out


@pytest.mark.parametrize(("made", "message"), NOT)
def test_what_cannot_be_scored_is_refused(made, message):
    with refused(message):
        check_scorable("zoo", made)


@pytest.mark.parametrize(("splits", "most"), [("ggqq", "2 items of gallery"), ("tttt", "3 items of test")])
def test_more_neighbours_than_there_are_is_refused(splits, most):
    check_scorable("zoo", parts(splits, "abab"), ks=(1, int(most[0])))
    with refused(f"ks=4 is more than the {most} that can be found; ask for fewer"):
        check_scorable("zoo", parts(splits, "abab"), ks=(1, 4))
