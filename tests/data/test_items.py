import os

import numpy as np
import pytest
from PIL import Image

from obdsd.data.items import ImageFiles, read_image
from obdsd.errors import InputError
from tests.data.trees import picture, refused


def test_modes_become_rgb_with_the_right_values(tmp_path):
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    expected = np.repeat(grey[:, :, None], 3, axis=2)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "16bit.png")
    Image.fromarray(grey.astype(np.int32) * 257).save(tmp_path / "32bit.tif")
    Image.fromarray(expected).quantize(256).save(tmp_path / "palette.png")
    Image.fromarray(expected).convert("CMYK").save(tmp_path / "cmyk.tif")
    Image.fromarray(np.concatenate([expected, np.full((16, 16, 1), 255, np.uint8)], axis=2)).save(tmp_path / "rgba.png")
    for path in tmp_path.iterdir():
        image = read_image(path)
        assert image.mode == "RGB", path
        assert np.abs(np.asarray(image).astype(int) - expected).max() <= (path.name == "cmyk.tif"), path


def test_dark_16_bits_stay_dark_transparency_is_on_white_and_animations_give_their_first_frame(tmp_path):
    Image.fromarray(np.full((4, 4), 200, dtype=np.uint16)).save(tmp_path / "dark.png")
    assert np.asarray(read_image(tmp_path / "dark.png")).max() == 1
    Image.new("RGBA", (4, 4), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    assert np.asarray(read_image(tmp_path / "clear.png")).min() == 255
    red, blue = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (4, 4), "blue")
    red.save(tmp_path / "moving.gif", save_all=True, append_images=[blue])
    assert read_image(tmp_path / "moving.gif").getpixel((0, 0)) == (255, 0, 0)


def test_an_image_stands_as_its_camera_says(tmp_path):
    image = picture(size=(40, 30))
    exif = image.getexif()
    exif[0x0112] = 6  # rotate by 90° clockwise to see it upright
    image.save(tmp_path / "turned.png", exif=exif)
    turned = np.asarray(read_image(tmp_path / "turned.png"))
    assert (turned == np.rot90(np.asarray(image), -1)).all()


def test_a_jpeg_may_be_asked_for_smaller(tmp_path):
    picture(size=(800, 400)).save(tmp_path / "a.jpg")
    assert [read_image(tmp_path / "a.jpg", side).size for side in (None, 400, 150, 1)] == [(800, 400), (800, 400), (400, 200), (100, 50)]
    whole, small = (np.asarray(read_image(tmp_path / "a.jpg", side).resize((100, 50))).astype(int) for side in (None, 150))
    assert np.abs(whole - small).mean() < 12


def test_boxes_crop(tmp_path):
    picture().save(tmp_path / "a.png")
    files = ImageFiles(tmp_path, ["a.png", "a.png"], [(5, 6, 25, 26), None])
    assert (np.asarray(files.read(0)) == np.asarray(picture())[6:26, 5:25]).all()
    assert files.read(1).size == (40, 30)
    assert [files.name(0), files.name(1)] == ["a.png (5, 6, 25, 26)", "a.png"]  # crops of one image have names of their own
    assert ImageFiles(tmp_path, ["a.png"], [(5, 6, 25, 26)]).name(0) == "a.png"


def test_content_is_that_of_the_whole_file_and_the_box(tmp_path):
    """Uncompressed pictures with plain margins may differ in few bytes, anywhere."""
    whole = np.random.default_rng(0).integers(0, 256, 100_000, dtype=np.uint8)
    seen = []
    for change in (None, 0, 20_000, 50_000, 80_001, 99_999):
        other = whole.copy()
        other[slice(0) if change is None else change] ^= 1
        (tmp_path / "a.jpg").write_bytes(other.tobytes())
        seen.append(ImageFiles(tmp_path, ["a.jpg"]).content(0))
    seen.append(ImageFiles(tmp_path, ["a.jpg"], [(0, 0, 2, 2)]).content(0))
    (tmp_path / "a.jpg").write_bytes(np.delete(whole, 20_000).tobytes())
    seen.append(ImageFiles(tmp_path, ["a.jpg"]).content(0))
    assert len(set(seen)) == len(seen)
    assert {*map(len, seen)} == {16}
    (tmp_path / "copy.jpg").write_bytes((tmp_path / "a.jpg").read_bytes())
    assert ImageFiles(tmp_path, ["copy.jpg"]).content(0) == seen[-1]
    os.mkfifo(tmp_path / "pipe.jpg")
    with refused("pipe.jpg: is no regular file"):
        ImageFiles(tmp_path, ["pipe.jpg"]).content(0)


def test_what_cannot_be_read_is_named(tmp_path):
    picture(size=(200, 200)).save(tmp_path / "whole.jpg")
    data = (tmp_path / "whole.jpg").read_bytes()
    for content in (data[: len(data) // 2], b"no image", b""):
        (tmp_path / "bad.jpg").write_bytes(content)
        with refused("bad.jpg: cannot be read as an image (", "); replace or remove it"):
            read_image(tmp_path / "bad.jpg")
    with refused("gone.jpg: no such file; check the path"):
        read_image(tmp_path / "gone.jpg")
    for name in ("gone.jpg", "x" * 5000):
        with refused(f"{name}: no such file; check the path"):
            ImageFiles(tmp_path, [name]).content(0)


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "gif", "bmp"])
def test_a_check_says_what_reading_says(tmp_path, kind):
    """Whole, cut off anywhere, empty, no image; and with a box."""
    picture(size=(300, 200)).save(tmp_path / f"whole.{kind}", **({"progressive": True} if kind == "jpg" else {}))
    content = (tmp_path / f"whole.{kind}").read_bytes()
    files = ImageFiles(tmp_path, [f"x.{kind}", f"x.{kind}"], [None, (0, 0, 301, 10)])

    def said(what):
        try:
            what()
        except InputError as fault:
            return str(fault)
        return "good"

    for share in (1, 0.99, 0.7, 0.3, 0.01, 0):
        (tmp_path / f"x.{kind}").write_bytes(content[: int(share * len(content))])
        for position in (0, 1):
            assert said(lambda: files.check(position)) == said(lambda: files.read(position)), share  # noqa: B023


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    end = os.open(tmp_path / "pipe.png", os.O_RDWR)
    os.write(end, bytes(1000))  # so that a reader that does open it comes back
    with refused("pipe.png: is no regular file; check the path"):
        read_image(tmp_path / "pipe.png")
    os.close(end)


@pytest.mark.parametrize("box", [(0, 0, 999999999, 999999999), (0, 0, 41, 30), (10**30, 0, 10**31, 9), (39, 0, 40, 31)])
def test_a_box_beyond_the_image_is_refused(tmp_path, box):
    picture(size=(40, 30)).save(tmp_path / "a.png")
    with refused(f"a.png: box={box} reaches beyond the image of 40 x 30 pixels; mend the box"):
        ImageFiles(tmp_path, ["a.png"], [box]).read(0)
    assert ImageFiles(tmp_path, ["a.png"], [(39, 29, 40, 30)]).read(0).size == (1, 1)
