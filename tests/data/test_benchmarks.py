"""What the benchmarks share."""

import pytest

from obdsd.catalogue import DATA
from obdsd.data import cars196, cub200, inshop, sop
from obdsd.data.benchmarks import read_list
from tests.data.trees import refused, touch


def test_the_counts_are_those_of_the_paper():
    images = [[count.images for count in module.COUNTS.values()] for module in (cub200, cars196, sop, inshop)]
    assert images == [[5864, 5924], [8054, 8131], [59551, 60502], [25882, 14218, 12612]]


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


def test_the_lines_of_a_list_after_the_header_with_any_spaces_between(tmp_path):
    (tmp_path / "list.txt").write_text("2\nimage label\na.jpg    1\r\n\nb.jpg\t2")
    assert list(read_list(tmp_path / "list.txt", "image label", skip=2)) == [["a.jpg", "1"], ["b.jpg", "2"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1 a.jpg\n2\n", "list.txt: line 2 must have 2 columns (number image), not 1; mend or replace the list"),
        (b"1 caf\xe9.jpg\n", "list.txt: is not UTF-8 at byte 5; save the list as UTF-8"),
        (b"1 ../../secret.jpg\n", "list.txt: line 1 names a file outside of the folder, '1 ../../secret.jpg'"),
        (b"1 /etc/secret.jpg\n", "list.txt: line 1 names a file outside of the folder, '1 /etc/secret.jpg'"),
    ],
)
def test_bad_lists_are_refused(tmp_path, content, message):
    (tmp_path / "list.txt").write_bytes(content)
    with refused(message):
        list(read_list(tmp_path / "list.txt", "number image"))
