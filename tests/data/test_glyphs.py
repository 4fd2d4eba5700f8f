import io
import unicodedata
import zipfile

import numpy as np
import pytest
from PIL import Image, ImageFont

from obdsd.data import glyphs as module
from obdsd.data.glyphs import LOOK_ALIKE, glyphs

LOOK_ALIKES, DIFFERENT = ("AΑ", "aа", "oο", "OՕ", "uս", "sѕ", "ÅÄ", "Xx", "Mм"), ("AB", "RЯ", "ДΔ", "bd", "EЭ")
FILE = f"glyphs-v{module.VERSION}.npz"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    glyphs(folder)
    return folder


@pytest.fixture(scope="module")
def collection(cache):
    return glyphs(cache)


def letters(part):
    return [chr(int(name.split()[0][2:], 16)) for name in part.class_names]


def test_classes_images_and_scripts(collection):
    assert 230 <= len(collection["train"].class_names) <= 250
    assert 300 <= len(collection["test"].class_names) <= 330
    scripts = {part: {unicodedata.name(c).split()[0] for c in letters(collection[part])} for part in ("train", "test")}
    assert scripts == {"train": {"LATIN"}, "test": {"GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN"}}
    for part in collection.parts.values():
        assert set(np.bincount(part.labels)) == {14}
        assert all(unicodedata.category(c).startswith("L") for c in letters(part))


def test_an_item_is_a_small_rgb_image_with_names_that_people_know(collection):
    train = collection["train"]
    image, label, index = train[3]
    assert (image.mode, image.size, label, index) == ("RGB", (32, 32), 0, 3)
    assert train.class_names[0] == "U+0041 LATIN CAPITAL LETTER A"
    code, instance = train.name(3).split("/")
    assert code == "U+0041"
    assert instance.endswith("-03")
    assert len({train.name(i) for i in range(len(train))}) == len(train)
    assert train.fingerprint() != train.take(np.arange(3)).fingerprint()


def test_renderings_are_equal_to_the_byte(collection, tmp_path, monkeypatch):
    """Twice the first few letters: equal files, and equal to these letters of the whole."""
    monkeypatch.setattr(module, "CLASSES", {"train": 8, "test": 4})
    few, _ = (glyphs(tmp_path / folder)["train"] for folder in ("one", "two"))
    assert (tmp_path / "one" / FILE).read_bytes() == (tmp_path / "two" / FILE).read_bytes()
    assert [path.name for path in (tmp_path / "one").iterdir()] == [FILE]  # nothing temporary stays
    assert few.class_names == collection["train"].class_names[:8]
    assert (few.items.pixels[few.positions] == collection["train"].items.pixels[: len(few)]).all()


def test_raw_pixels_find_some_but_not_most(collection):
    """Cosine of flattened pixels around the mean image of the part, Recall@1: 21.7 % when this was written."""
    test = collection["test"]
    x = test.items.pixels[test.positions].reshape(len(test), -1).astype(np.float32)
    x -= x.mean(axis=0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    similarity = x @ x.T
    np.fill_diagonal(similarity, -1)
    assert 0.15 <= (test.labels[similarity.argmax(axis=1)] == test.labels).mean() <= 0.30


def test_no_two_classes_look_alike(collection):
    font = module._font("DejaVuSans")
    shapes = np.stack([module._shape(c, font) for part in collection.parts.values() for c in letters(part)])
    correlation = shapes @ shapes.T
    np.testing.assert_allclose(correlation.diagonal(), 1, rtol=1e-5)
    np.fill_diagonal(correlation, 0)
    assert correlation.max() <= LOOK_ALIKE + 1e-6


def test_known_look_alikes_are_above_the_threshold_and_different_letters_below():
    font = module._font("DejaVuSans")
    alike = {pair: module._shape(pair[0], font) @ module._shape(pair[1], font) > LOOK_ALIKE for pair in (*LOOK_ALIKES, *DIFFERENT)}
    assert {pair for pair in alike if alike[pair]} == set(LOOK_ALIKES)


def test_no_face_draws_a_box_or_nothing(collection):
    fonts = {name: module._font(name) for name in module._faces()}
    box = {name: module._draw("\U0010fffd", font).tobytes() for name, font in fonts.items() if font.getbbox("\U0010fffd")[2]}
    assert "DejaVuSans" in box
    drawn = set()
    for part in collection.parts.values():
        for i in range(len(part)):
            code, rest = part.name(i).split("/")
            drawn.add((chr(int(code[2:], 16)), rest.rsplit("-", 1)[0]))
    for letter, face in drawn:
        glyph = module._draw(letter, fonts[face])
        assert glyph.getextrema()[1] > 200, (letter, face)
        assert glyph.tobytes() != box.get(face), (letter, face)


def test_every_image_shows_ink_on_paper_and_none_is_clipped(collection):
    pixels = collection["train"].items.pixels.astype(float)
    assert pixels.reshape(len(pixels), -1).std(axis=1).min() > 25  # the noise alone has a deviation of about 20
    glyph = Image.new("L", (40, 60), 255)  # all ink
    for seed in range(20):
        angle = np.random.default_rng(seed).uniform(-0.4, 0.4)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        areas = [module._place(glyph, turn, fill=0.8, shift=np.array(s, dtype=float)).sum() for s in ((0, 0), (1, 1), (-1, 1))]
        assert max(areas) / min(areas) == pytest.approx(1, abs=0.02)  # at the border there is as much ink as in the middle


def test_computer_modern_is_trusted_for_ascii_alone():
    faces = module._faces()
    assert all(letter.isascii() for face in ("cmr10", "cmmi10", "cmtt10") for letter in faces[face])
    assert not {"cmex10", "cmsy10", "LastResortHE-Regular", "STIXNonUni", "STIXSizOneSymReg", "DejaVuSansDisplay"} & set(faces)
    assert all(isinstance(module._font(face), ImageFont.FreeTypeFont) for face in faces)


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def other(content):
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr("pixels.npy", b"no array")
    return file.getvalue()


@pytest.fixture
def rendered_at_once(cache, monkeypatch):
    rendered = module._load(cache / FILE)
    monkeypatch.setattr(module, "_render", lambda: rendered)


@pytest.mark.parametrize("damage", [lambda content: content[:5000], flipped, lambda content: b"", other])
@pytest.mark.usefixtures("rendered_at_once")
def test_a_damaged_cache_is_rendered_anew(cache, tmp_path, damage):
    whole = (cache / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(damage(whole))
    glyphs(tmp_path)
    assert (tmp_path / FILE).read_bytes() == whole


def test_a_whole_cache_is_not_rendered_again_and_follows_the_environment(cache, tmp_path, monkeypatch):
    monkeypatch.delenv("OBDSD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "obdsd").symlink_to(cache)
    monkeypatch.setattr(module, "_render", lambda: pytest.fail("rendered"))
    glyphs()


@pytest.mark.usefixtures("rendered_at_once")
def test_a_cache_that_cannot_be_written_is_said_and_the_data_is_there(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.warns(UserWarning, match="glyphs are rendered anew each time: .*cannot be written"):
        assert len(glyphs(tmp_path / "file")["train"])
