import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from obdsd.data.batches import ClassBatches, Draw
from obdsd.data.collection import collect
from obdsd.data.items import ImageFiles
from obdsd.data.transforms import Augmented, evaluation_transform, training_transform
from obdsd.preprocessing import Preprocessing
from tests.data.trees import picture


def test_pixels_become_what_the_backbone_expects():
    image = Image.new("RGB", (8, 8), (255, 127, 0))
    standard = evaluation_transform(Preprocessing(size=4, resize=4))(image)
    expected = [(1 - 0.485) / 0.229, (127 / 255 - 0.456) / 0.224, (0 - 0.406) / 0.225]
    torch.testing.assert_close(standard[:, 0, 0], torch.tensor(expected))
    lite = Preprocessing(size=4, resize=4, range=255, mean=(127, 127, 127), std=(128, 128, 128))
    torch.testing.assert_close(evaluation_transform(lite)(image)[:, 1, 1], torch.tensor([1.0, 0.0, -127 / 128]))
    inception = Preprocessing(size=4, resize=4, range=255, mean=(104, 117, 128), std=(1, 1, 1), channels="bgr")
    torch.testing.assert_close(evaluation_transform(inception)(image)[:, 1, 1], torch.tensor([-104.0, 10.0, 127.0]))


def test_evaluation_takes_the_centre_of_the_resized_image():
    image = picture(size=(80, 40))
    crop = evaluation_transform(Preprocessing(size=20, resize=40, mean=(0, 0, 0), std=(1, 1, 1)))(image)
    torch.testing.assert_close(crop, torch.from_numpy(np.asarray(image)[10:30, 30:50].astype(np.float32)).permute(2, 0, 1) / 255)


def test_training_without_a_crop_keeps_the_whole_of_a_wide_image():
    pixels = np.zeros((4, 24, 3), dtype=np.uint8)
    pixels[:, :6] = pixels[:, -6:] = 255  # the outer quarters, which a crop of the middle would lose
    transform = training_transform(Preprocessing(size=4, resize=4, mean=(0, 0, 0), std=(1, 1, 1)), smallest=1, flip=False)
    columns = transform(Image.fromarray(pixels)).mean(dim=(0, 1))
    assert (columns > 0.5).tolist() == [True, False, False, True]
    assert columns[0] == columns[3]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    for i in range(24):
        picture(i).save(root / f"{i}.png")
    labels = [f"class {i // 4}" for i in range(24)]
    return collect("pictures", ImageFiles(root, [f"{i}.png" for i in range(24)]), labels, ["train"] * 16 + ["test"] * 8)["train"]


def epoch_of(part, workers, seed=0, epoch=1):
    batches = ClassBatches(part.labels, 4, 2, seed)
    batches.set_epoch(epoch)
    data = Augmented(part, training_transform(Preprocessing(size=16, resize=16)), seed)
    return list(DataLoader(data, batch_sampler=batches, num_workers=workers))


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # four workers on two cores are the point here
def test_augmentation_is_the_same_for_any_number_of_workers(pictures):
    alone = epoch_of(pictures, 0)
    assert len(alone) == 4
    for workers in (1, 4):
        torch.testing.assert_close(epoch_of(pictures, workers), alone, rtol=0, atol=0)
    torch.manual_seed(7)  # the global state plays no part
    assert torch.equal(epoch_of(pictures, 0)[0][0], alone[0][0])


def test_each_place_has_its_own_randomness(pictures):
    data = Augmented(pictures, training_transform(Preprocessing(size=16, resize=16)), seed=0)
    before = torch.get_rng_state()
    base = data[Draw(3, 1, 2, 5)][0]
    assert torch.equal(torch.get_rng_state(), before)  # and leaves the global state alone
    assert torch.equal(data[Draw(3, 1, 2, 5)][0], base)
    for other in (Draw(3, 2, 2, 5), Draw(3, 1, 3, 5), Draw(3, 1, 2, 6)):
        assert not torch.equal(data[other][0], base)
    assert not torch.equal(Augmented(pictures, data.transform, seed=1)[Draw(3, 1, 2, 5)][0], base)


def test_a_place_keeps_the_seed_that_it_always_had(pictures):
    """A number from before all seeds came from one module: runs can still be repeated."""
    assert Augmented(pictures, lambda image: torch.initial_seed(), seed=7)[Draw(3, 3, 12, 55)][0] == 6154314116828611172


def borders(ramp):
    """Where a crop of the ramp begins and how wide it is, across and down: by the straight line through its pixels."""
    lines = [np.polyfit((np.arange(len(ramp[c])) + 0.5) / len(ramp[c]), ramp[c].mean(dim=c), 1) for c in (0, 1)]
    return np.concatenate(lines)


def test_a_teacher_is_shown_the_same_crop_and_flip_in_its_own_size(tmp_path):
    """Of a picture whose red says how far to the right a pixel is, and whose green how far down."""
    across, down = np.meshgrid(np.linspace(0, 255, 160), np.linspace(0, 255, 120))
    Image.fromarray(np.stack([across, down, 0 * down], axis=2).round().astype(np.uint8)).save(tmp_path / "ramp.png")
    part = collect("ramp", ImageFiles(tmp_path, ["ramp.png"] * 2), ["a", "b"], ["train"] * 2)["train"]
    plain = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "range": 255.0}
    own, larger = Preprocessing(size=24, resize=24, **plain), Preprocessing(size=60, resize=70, interpolation="bicubic", **plain)
    data = Augmented(part, training_transform(own), 3, training_transform(larger))
    crops = []
    for position in range(20):
        one, label, index, other = data[Draw(0, 1, 2, position)]
        assert (one.shape, other.shape, label, index) == ((3, 24, 24), (3, 60, 60), 0, 0)
        crops.append(borders(one))
        np.testing.assert_allclose(crops[-1], borders(other), atol=3)
    assert np.ptp(crops, axis=0).min() > 50  # they differ
    assert {crop[0] > 0 for crop in crops} == {True, False}  # mirrored and not
    assert len(Augmented(part, training_transform(own), 3)[Draw(0, 1, 2, 0)]) == 3
