"""Archives of others: nothing of them leaves the folder, and the folder is whole or not there."""

import io
import re
import stat
import tarfile
import zipfile

import pytest

from obdsd import InputError
from obdsd.data import unpacking
from obdsd.data.unpacking import unpack


def tgz(path, *members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content, kind in members:
            about = tarfile.TarInfo(name)
            about.type = kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                about.linkname = content
                archive.addfile(about)
            else:
                about.size = len(content)
                archive.addfile(about, io.BytesIO(content))


def zipped(path, *members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in members:
            about = zipfile.ZipInfo(name)
            about.external_attr = mode << 16
            archive.writestr(about, content, zipfile.ZIP_DEFLATED)


FILE, GOOD = tarfile.REGTYPE, ("data/good.jpg", b"good")
HOSTILE_TARS = [
    (("../evil", b"x", FILE), "holds '../evil', which leads out of the folder"),
    (("data/../../evil", b"x", FILE), "holds 'data/../../evil', which leads out of the folder"),
    (("/tmp/evil", b"x", FILE), "holds '/tmp/evil', which leads out of the folder"),
    (("../evil", b"", tarfile.DIRTYPE), "holds '../evil', which leads out of the folder"),
    (("data/link", "../..", tarfile.SYMTYPE), "holds 'data/link', which is a link or a device"),
    (("data/hard", "data/good.jpg", tarfile.LNKTYPE), "holds 'data/hard', which is a link or a device"),
    (("data/pipe", b"", tarfile.FIFOTYPE), "holds 'data/pipe', which is a link or a device"),
    (("data/disk", b"", tarfile.BLKTYPE), "holds 'data/disk', which is a link or a device"),
    (("data/good.jpg", b"other", FILE), "holds 'data/good.jpg' twice"),
    (("data/good.jpg/below", b"other", FILE), "holds 'data/good.jpg/below' twice"),
    (("data/zeros", bytes(3_000_000), FILE), "is much larger unpacked than packed"),
]
HOSTILE_ZIPS = [
    (("../evil", b"x", stat.S_IFREG), "holds '../evil', which leads out of the folder"),
    (("data/link", b"../..", stat.S_IFLNK), "holds 'data/link', which is a link or a device"),
    (("data/zeros", bytes(3_000_000), 0), "is much larger unpacked than packed"),
]


@pytest.mark.parametrize(
    ("pack", "suffix", "good", "hostile", "message"),
    [
        *((tgz, "tgz", (*GOOD, FILE), *each) for each in HOSTILE_TARS),
        *((zipped, "zip", (*GOOD, stat.S_IFREG), *each) for each in HOSTILE_ZIPS),
    ],
)
def test_a_hostile_archive_leaves_nothing_anywhere(tmp_path, monkeypatch, pack, suffix, good, hostile, message):
    monkeypatch.setattr(unpacking, "SLACK", 1_000_000)
    home = tmp_path / "a" / "b"
    home.mkdir(parents=True)
    pack(home / f"x.{suffix}", good, hostile)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=re.escape(f"x.{suffix}: {message}")) as refusal:
        unpack(home / f"x.{suffix}", home / "data")
    assert "\n" not in str(refusal.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_links_in_the_place_are_not_followed(tmp_path):
    """Somebody else may have put a link where the folder, or what becomes it, is to be."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").touch()
    (tmp_path / ".data.unpacking").symlink_to(tmp_path / "elsewhere")
    tgz(tmp_path / "x.tgz", (*GOOD, FILE))
    with pytest.raises(FileExistsError):
        unpack(tmp_path / "x.tgz", tmp_path / "data")
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["precious"]


def test_rights_of_files_are_the_users_own(tmp_path):
    with tarfile.open(tmp_path / "x.tgz", "w:gz") as archive:
        about = tarfile.TarInfo("data/run.sh")
        about.mode = 0o6777
        archive.addfile(about, io.BytesIO())
    unpack(tmp_path / "x.tgz", tmp_path / "data")
    assert stat.S_IMODE((tmp_path / "data" / "run.sh").stat().st_mode) & 0o6111 == 0


@pytest.mark.parametrize("suffix", ["tgz", "zip"])
def test_a_damaged_archive_is_one_line(tmp_path, suffix):
    file = tmp_path / f"x.{suffix}"
    content = bytes(range(256)) * 400
    if suffix == "zip":
        zipped(file, ("data/1.jpg", content, 0))
    else:
        tgz(file, ("data/1.jpg", content, FILE))
    whole = file.read_bytes()
    for bad in (b"", whole[: len(whole) // 2], whole[:60] + bytes(20) + whole[80:], b"no archive at all"):
        file.write_bytes(bad)
        with pytest.raises(InputError, match=rf"x.{suffix}: (cannot be unpacked \(|holds no folder data)") as refusal:
            unpack(file, tmp_path / "data")
        assert "\n" not in str(refusal.value)
        assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_an_archive_of_something_else_is_refused(tmp_path):
    tgz(tmp_path / "x.tgz", ("other/1.jpg", b"x", FILE), ("data", b"a file", FILE))
    with pytest.raises(InputError, match=r"x.tgz: holds no folder data; get the archive again"):
        unpack(tmp_path / "x.tgz", tmp_path / "data")
