import pytest

from obdsd.data.benchmarks import read_list
from tests.data.trees import refused


def test_lines_after_the_header_with_any_spaces_between(tmp_path):
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
