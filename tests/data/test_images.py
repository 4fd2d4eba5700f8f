import numpy as np
import pytest
from PIL import Image

from obdsd.data.items import ImageFiles, read_image
from tests.data.trees import picture


def test_modes_become_rgb_with_the_right_values(tmp_path):
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    expected = np.repeat(grey[:, :, None], 3, axis=2)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "16bit.png")
    Image.fromarray(grey.astype(np.int32) * 257).save(tmp_path / "32bit.tif")
    Image.fromarray(expected).quantize(256).save(tmp_path / "palette.png")
    Image.fromarray(expected).convert("CMYK").save(tmp_path / "cmyk.tif")
    transparent = Image.fromarray(np.concatenate([expected, np.full((16, 16, 1), 255, np.uint8)], axis=2))
    transparent.save(tmp_path / "rgba.png")
    for name, tolerance in (("grey.png", 0), ("16bit.png", 0), ("32bit.tif", 0), ("palette.png", 0), ("cmyk.tif", 1), ("rgba.png", 0)):
        image = read_image(tmp_path / name)
        assert image.mode == "RGB", name
        assert np.abs(np.asarray(image).astype(int) - expected).max() <= tolerance, name


def test_a_16_bit_image_is_scaled_by_its_type_not_by_its_content(tmp_path):
    dark = np.full((4, 4), 200, dtype=np.uint16)  # nearly black
    Image.fromarray(dark).save(tmp_path / "dark.png")
    assert np.asarray(read_image(tmp_path / "dark.png")).max() == 1


def test_transparency_is_on_white_and_animations_give_their_first_frame(tmp_path):
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


def test_boxes_crop(tmp_path):
    picture().save(tmp_path / "a.png")
    files = ImageFiles(tmp_path, ["a.png", "a.png"], [(5, 6, 25, 26), None])
    assert (np.asarray(files.read(0)) == np.asarray(picture())[6:26, 5:25]).all()
    assert files.read(1).size == (40, 30)
    assert [files.name(0), files.name(1)] == ["a.png (5, 6, 25, 26)", "a.png"]  # crops of one image have names of their own
    assert ImageFiles(tmp_path, ["a.png"], [(5, 6, 25, 26)]).name(0) == "a.png"


def test_what_cannot_be_read_is_named(tmp_path):
    picture(size=(200, 200)).save(tmp_path / "whole.jpg")
    data = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(data[: len(data) // 2])
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "empty.jpg").write_bytes(b"")
    for name in ("cut.jpg", "text.jpg", "empty.jpg"):
        with pytest.raises(ValueError, match=rf"{name}: cannot be read as an image \(.*\); replace or remove it") as refusal:
            read_image(tmp_path / name)
        assert "\n" not in str(refusal.value)
    with pytest.raises(ValueError, match=r"gone\.jpg: no such image"):
        read_image(tmp_path / "gone.jpg")
