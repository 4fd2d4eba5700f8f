"""The cache of decoded images: what it holds, when it is built anew, what is refused, and two processes at once."""

import os
import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from filelock import FileLock
from PIL import Image
from torchvision.transforms import InterpolationMode, v2

from obdsd.data import open_data, store
from obdsd.data.collection import collect, loader_workers
from obdsd.data.decoded import Reduced, at_a_test, decoded, reduced
from obdsd.data.items import ImageFiles
from obdsd.data.transforms import RandomCrop, evaluation_transform, pixels_of
from obdsd.preprocessing import Preprocessing
from tests.data.trees import picture, refused

SIZES = [(40, 30), (30, 40), (24, 24), (90, 20), (26, 41), (25, 25), (21, 22), (64, 48)]
BOXES = [None, (2, 3, 27, 39), None, None, None, None, None, (10, 0, 40, 45)]
NAMES = [f"{'ü' * (i == 2)}{i}.png" for i in range(len(SIZES))]
LABELS = [f"class {i // 2}" for i in range(len(SIZES))]


@pytest.fixture
def photos(tmp_path):
    """Eight images of any shape, two with a box; the file of a cache is `tmp_path/kept/photos-….images`."""
    root = tmp_path / "photos"
    root.mkdir()
    for i, size in enumerate(SIZES):
        picture(i, size).save(root / NAMES[i])
    return collect("photos", ImageFiles(root, NAMES, BOXES), LABELS, ["train"] * 6 + ["test"] * 2)


def file_of(folder):
    (file,) = folder.glob("*.images")
    return file


def whole(i):
    """The pixels of an image as Pillow gives them."""
    image = picture(i, SIZES[i])
    return image if BOXES[i] is None else image.crop(BOXES[i])


def cached(photos, tmp_path, side=0, **named):
    return decoded(photos, tmp_path / "kept", side, "bilinear", **named)


def same_pixels(kept, side=0):
    """Every image by torchvision's own transform, reduced if its shorter side is longer."""
    shrink = v2.Compose([v2.ToImage(), v2.Resize(side, antialias=True)]) if side else v2.ToImage()
    for part, numbers in (("train", range(6)), ("test", range(6, 8))):
        for index, i in enumerate(numbers):
            image = whole(i)
            truth = shrink(image) if 0 < side < min(image.size) else v2.functional.to_image(image)
            assert torch.equal(pixels_of(kept[part][index][0]), truth), i


@pytest.mark.parametrize("side", [0, 22, 25, 500])
def test_what_is_kept_is_what_the_files_hold(photos, tmp_path, side):
    kept, line = cached(photos, tmp_path, side)
    same_pixels(kept, side)
    without = {name: reduced(part, side, "bilinear") for name, part in photos.parts.items()}
    assert without == photos.parts if side == 0 else same_pixels(without, side) is None
    size = f"with a shorter side of at most {side}" if side else "of their full size"
    assert line == f"{file_of(tmp_path / 'kept')}: 8 images {size}, 0 MiB"
    assert [kept["train"].name(i) for i in range(6)] == [photos["train"].name(i) for i in range(6)]
    assert kept["train"].fingerprint() == photos["train"].fingerprint()  # they are the same data
    assert loader_workers(None, kept["train"]) == loader_workers(None, photos["train"]) > 0


def test_a_test_sees_the_same_with_a_cache_of_any_side(photos, tmp_path):
    """A cache of the side that the model asks for is read. One of another side is not, unless no image is larger."""
    for how in (Preprocessing(size=16, resize=22), Preprocessing(size=20, resize=22, interpolation="bicubic")):
        truth = [evaluation_transform(how)(whole(i)) for i in range(6)]
        for side, from_cache in ((22, True), (21, False), (0, True), (500, True)):
            kept, _ = decoded(photos, tmp_path / "kept", side, how.interpolation)
            seen = at_a_test(kept["train"], how)
            assert isinstance(seen.items, Reduced) == from_cache
            assert all(torch.equal(seen[i][0], truth[i]) for i in range(6))
        kept, _ = decoded(photos, tmp_path / "kept", 22, "bicubic" if how.interpolation == "bilinear" else "bilinear")
        assert all(torch.equal(at_a_test(kept["train"], how)[i][0], truth[i]) for i in range(6))


def test_a_random_crop_shows_the_same_place_of_a_smaller_image(tmp_path):
    """The colours say where a pixel is."""
    y, x = np.mgrid[0:120, 0:200]
    Image.fromarray(np.stack([x, y, (x + y) / 2], axis=2).astype(np.uint8)).save(tmp_path / "a.png")
    files = collect("one", ImageFiles(tmp_path, ["a.png"]), ["x"], ["test"])
    crop = RandomCrop(Preprocessing(size=30, resize=30))
    for side in (119, 60, 40):
        kept, _ = decoded(files, tmp_path / "kept", side, "bilinear")
        for seed in range(20):
            seen = []
            for part in (files["test"], kept["test"], reduced(files["test"], side, "bilinear")):
                torch.manual_seed(seed)
                seen.append(crop(part[0][0]).float())
            assert (seen[1] - seen[0]).abs().mean() < 0.75 * 120 / side  # less than a pixel of the smaller image
            assert torch.equal(seen[1], seen[2])


def test_an_image_of_that_side_is_not_resized_again():
    """Else a cache of just the side that a test asks for would blur."""
    for shape in SIZES:
        once = v2.Resize(22, InterpolationMode.BILINEAR)(v2.functional.to_image(picture(0, (shape[0] * 3, shape[1] * 3))))
        assert torch.equal(v2.Resize(22, InterpolationMode.BILINEAR)(once), once)


def test_it_is_built_once_and_for_any_split(photos, tmp_path):
    told = []
    cached(photos, tmp_path, progress=lambda *words: told.append(words))
    assert told == [("decoding images into the cache", 0, 8), ("decoding images into the cache", 8, 8)]
    made = file_of(tmp_path / "kept").stat()
    several = photos.merged(seed=3), photos.hold_out(fraction=0.34), replace(photos, parts={"test": photos["test"]})
    for other in several:
        kept, line = cached(other, tmp_path, progress=lambda *words: told.append(words))
        assert "anew" not in line
        assert torch.equal(kept["test"][0][0], v2.functional.to_image(other["test"][0][0]))
    assert len(told) == 2
    assert file_of(tmp_path / "kept").stat() == made


def changed_time(photos, tmp_path):
    os.utime(tmp_path / "photos" / NAMES[1], ns=(1, 1))
    return f"1 of 8 images changed since: {NAMES[1]}"


def changed_size(photos, tmp_path):
    path = tmp_path / "photos" / NAMES[2]
    before = path.stat()
    path.write_bytes(path.read_bytes() + b"\0")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return f"1 of 8 images changed since: {NAMES[2]}"


def made_for_fewer(photos, tmp_path):
    file_of(tmp_path / "kept").unlink()
    cached(replace(photos, parts={"train": photos["train"]}), tmp_path)
    return f"2 of 8 images were not in it: {NAMES[6]}, {NAMES[7]}"


def made_by_others(photos, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "VERSIONS", {**store.VERSIONS, "Pillow": "1.0"})
        cached(photos, tmp_path)
    return f"it was not made by Pillow {store.VERSIONS['Pillow']}"


def cut_off(photos, tmp_path):
    file = file_of(tmp_path / "kept")
    os.truncate(file, file.stat().st_size - 30)
    return "it was damaged (its end is missing or not what was written)"


def nearly_nothing_left(photos, tmp_path):
    os.truncate(file_of(tmp_path / "kept"), 20)
    return "it was damaged (its end is missing or not what was written)"


def pixels_lost(photos, tmp_path):
    file = file_of(tmp_path / "kept")
    content = file.read_bytes()
    file.write_bytes(content[:100] + content[400:])
    return "it was damaged (some of its pixels are missing)"


@pytest.mark.parametrize(
    "spoil",
    [changed_time, changed_size, made_for_fewer, made_by_others, cut_off, nearly_nothing_left, pixels_lost],
    ids=lambda f: f.__name__,
)
def test_one_that_is_stale_or_damaged_is_built_anew_with_a_line(photos, tmp_path, spoil):
    cached(photos, tmp_path)
    why = spoil(photos, tmp_path)
    kept, line = cached(photos, tmp_path)
    assert line.endswith(f"MiB; built anew, as {why}")
    same_pixels(kept)
    assert "anew" not in cached(photos, tmp_path)[1]


def test_a_training_under_way_keeps_the_pixels_that_it_began_with(photos, tmp_path):
    before, _ = cached(photos, tmp_path)
    truth = before["train"][0][0]
    picture(99, SIZES[0]).save(tmp_path / "photos" / NAMES[0])
    after, line = cached(photos, tmp_path)
    assert f"1 of 8 images changed since: {NAMES[0]}" in line
    assert torch.equal(before["train"][0][0], truth)
    assert not torch.equal(after["train"][0][0], truth)


def test_processes_that_are_started_with_a_copy_map_the_file_themselves(photos, tmp_path):
    kept, _ = cached(photos, tmp_path)
    sent = pickle.dumps(kept["train"])
    assert len(sent) < 4000  # no pixels in it
    assert torch.equal(pickle.loads(sent)[3][0], kept["train"][3][0])
    changed_time(photos, tmp_path)
    cached(photos, tmp_path)
    with refused("photos-whole-", ".images: was built anew while a training read it; start the training again"):
        pickle.loads(sent)


def test_what_stands_in_its_place_is_left_alone(photos, tmp_path):
    cached(photos, tmp_path)
    file = file_of(tmp_path / "kept")
    for content in (b"my thesis, " * 30, b""):
        file.write_bytes(content)
        with refused(
            "photos-whole-", ".images: is no cache of images and is left as it is; remove it, or choose another folder by --cache"
        ):
            cached(photos, tmp_path)
        assert file.read_bytes() == content
    file.unlink()
    os.mkfifo(file)  # a pipe would be waited for without end
    with refused(".images: is no regular file; check the path"):
        cached(photos, tmp_path)


def test_a_folder_that_cannot_be_written_and_a_file_that_cannot_be_read(photos, tmp_path, monkeypatch):
    (tmp_path / "taken").write_text("a file")
    with refused("photos-whole-", ".images: cannot be written (", "make room or choose another place"):
        decoded(photos, tmp_path / "taken", 0, "bilinear")
    cached(photos, tmp_path)

    def denied(*given, **named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store.np, "memmap", denied)  # whoever runs the tests may read everything
    with refused(".images: cannot be read (Permission denied); mend that, or choose another folder by --cache"):
        cached(photos, tmp_path)


def test_an_image_that_is_gone_or_damaged_is_named_and_nothing_is_kept(photos, tmp_path):
    (tmp_path / "photos" / NAMES[4]).write_bytes(b"no image")
    with refused(f"{NAMES[4]}: cannot be read as an image"):
        cached(photos, tmp_path)
    (tmp_path / "photos" / NAMES[4]).unlink()
    with refused(f"{NAMES[4]}: no such file"):
        cached(photos, tmp_path)
    assert [path.name for path in (tmp_path / "kept").iterdir() if not path.name.endswith(".lock")] == []


def test_of_two_processes_one_builds_and_the_other_waits(photos, tmp_path):
    """The lock is held as by one that builds; then what it built is there."""
    cached(photos, tmp_path)
    file = file_of(tmp_path / "kept")
    file.rename(tmp_path / "built")
    told, waits, found = [], threading.Event(), []

    def tell(*words):
        told.append(words)
        waits.set()

    with FileLock(file.with_name(f".{file.name}.lock")):
        other = threading.Thread(target=lambda: found.append(cached(photos, tmp_path, progress=tell)))
        other.start()
        assert waits.wait(30)
        (tmp_path / "built").rename(file)
    other.join(30)
    assert {stage for stage, *_ in told} == {"waiting for another process that builds the cache"}
    same_pixels(found[0][0])
    assert "anew" not in found[0][1]


def test_only_image_files_of_one_folder_have_a_cache(photos, tmp_path):
    with refused("cache=", "is for image files below one folder, glyphs is something else; leave it out"):
        decoded(open_data("glyphs"), tmp_path, 0, "bilinear")
    other = photos["test"].replace(items=ImageFiles(tmp_path / "photos", NAMES))
    with refused("cache=", "is for image files below one folder, photos is something else"):
        decoded(replace(photos, parts={"train": photos["train"], "test": other}), tmp_path, 0, "bilinear")


def test_a_large_image_is_read_as_an_array_of_bytes(tmp_path):
    """Not square, not small, not multiples of anything: rows and columns are not mixed up."""
    pixels = np.random.default_rng(0).integers(0, 256, (301, 403, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    kept, _ = decoded(collect("one", ImageFiles(tmp_path, ["a.png"]), ["x"], ["test"]), tmp_path / "kept", 0, "bilinear")
    assert np.array_equal(kept["test"][0][0].permute(1, 2, 0).numpy(), pixels)
