import pytest

from obdsd.data import inshop as module
from obdsd.data.benchmarks import Count
from obdsd.data.check import check_trainable
from obdsd.data.inshop import inshop
from tests.data.trees import refused, split_of, touch, write

TRAIN = ["img/A/id_0/1.jpg id_0 train", "img/A/id_1/1.jpg id_1 train", "img/A/id_1/2.jpg id_1 train"]
TEST = ["img/A/id_2/1.jpg id_2 query", "img/A/id_2/2.jpg id_2 gallery", "img/B/id_3/1.jpg id_3 gallery"]
SHOP = [*TRAIN, *TEST, "img/B/id_3/2.jpg id_3 gallery", "img/B/id_3/3.jpg id_3 query"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Counts of the tree below, so that it is complete."""
    monkeypatch.setattr(module, "COUNTS", {"train": Count(2, 3), "query": Count(2, 2), "gallery": Count(2, 3)})


def shop(root, lists="", images="", lines=SHOP, skip=()):
    columns = "image_name item_id evaluation_status"
    write(root / lists / "list_eval_partition.txt", str(len(lines)), columns, *(line.replace(" ", "    ") for line in lines))
    touch(root / images, *(line.split()[0] for line in lines if line.split()[0] not in skip))
    return root


@pytest.mark.parametrize("lists", ["", "Eval", "Anno"])
@pytest.mark.parametrize("images", ["", "Img"])
def test_lists_and_images_in_any_place(tmp_path, lists, images):
    collection = inshop(shop(tmp_path, lists, images))
    assert split_of(collection) == {
        "train": {"id_0": ["img/A/id_0/1.jpg"], "id_1": ["img/A/id_1/1.jpg", "img/A/id_1/2.jpg"]},
        "query": {"id_2": ["img/A/id_2/1.jpg"], "id_3": ["img/B/id_3/3.jpg"]},
        "gallery": {"id_2": ["img/A/id_2/2.jpg"], "id_3": ["img/B/id_3/1.jpg", "img/B/id_3/2.jpg"]},
    }
    assert collection["query"].class_names == collection["gallery"].class_names == ("id_2", "id_3")
    assert (collection["train"].items.root / collection["train"].name(0)).is_file()


def test_query_and_gallery_keep_one_numbering_where_classes_are_missing(tmp_path):
    shop(tmp_path, skip=["img/A/id_2/1.jpg"])
    with refused("query has 1 classes and 1 images, expected 2 and 2", "no files: id_2", "1 listed files are missing: img/A/id_2/1.jpg"):
        inshop(tmp_path)
    found = inshop(tmp_path, allow_incomplete=True)
    assert found["query"].class_names == found["gallery"].class_names
    assert sorted(found["query"].class_names) == ["id_2", "id_3"]
    assert (found["query"].classes.tolist(), found["gallery"].classes.tolist()) == (["id_3"], ["id_2", "id_3", "id_3"])


def test_a_status_that_is_unknown_and_a_class_on_both_sides(tmp_path):
    shop(tmp_path, lines=[*SHOP, "img/B/id_3/4.jpg id_3 val"])
    with refused("list_eval_partition.txt: evaluation_status 'val' of img/B/id_3/4.jpg must be train, query or gallery"):
        inshop(tmp_path)
    shop(tmp_path, lines=[*SHOP, "img/B/id_3/4.jpg id_3 train"])
    with refused("inshop: train and", "share 1 classes (id_3)"):
        check_trainable(inshop(tmp_path, allow_incomplete=True))
