"""What the benchmarks share."""

import pytest

from obdsd.catalogue import DATA
from obdsd.data import cars196, cub200, inshop, sop
from tests.data.trees import refused, touch


def test_the_counts_are_those_of_the_paper():
    images = {
        module.__name__.split(".")[-1]: [count.images for count in module.COUNTS.values()] for module in (cub200, cars196, sop, inshop)
    }
    assert images == {"cub200": [5864, 5924], "cars196": [8054, 8131], "sop": [59551, 60502], "inshop": [25882, 14218, 12612]}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("cub200", "looked for images.txt with image_class_labels.txt and classes.txt, or class folders"),
        ("cars196", "looked for cars_annos.mat (also in devkit/ and ..) with car_ims/, or class folders"),
        ("sop", "looked for Ebay_train.txt and Ebay_test.txt, also in Info_Files/"),
        ("inshop", "looked for list_eval_partition.txt, also in Eval/ and Anno/"),
    ],
)
def test_an_unknown_layout_says_what_was_looked_for_and_where(tmp_path, name, wanted):
    load = DATA.find(name)
    touch(tmp_path, "readme.txt", "photos/readme.txt")
    with refused(f"{name}: no known layout in {tmp_path}; {wanted}"):
        load(tmp_path, allow_incomplete=True)
    with refused(f"{tmp_path / 'nowhere'}: no such folder"):
        load(tmp_path / "nowhere")
