"""Images from the disk to a model, and through it: a training's batches beside torchvision's, and rows beside those of the plain model.

`OBDSD_IMAGES` names a folder of class folders, such as CUB_200_2011/images; without it, images are made up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

from benchmarks.harness import Comparison, run
from obdsd.data import Collection, open_data
from obdsd.data.decoded import decoded
from obdsd.evaluation.embedding import embed
from obdsd.models import Embedder
from obdsd.models.inference import for_inference
from obdsd.options import TrainOptions
from obdsd.preprocessing import Preprocessing
from obdsd.training.loader import TrainingBatches

BATCH, BATCHES = 112, 4
CLASSES, EACH = 60, 12  # that are made up
SEEN = Preprocessing(size=96, resize=109)
SIDES = (128, 112, 109, 96)  # of images whose crops are compared with those of the whole ones


def make_up(folder: Path) -> Path:
    """JPEG files like those of a photo collection: 144 pixels on the shorter side, smooth, with some noise."""
    random = np.random.default_rng(0)
    for number in range(CLASSES * EACH):
        coarse = Image.fromarray(random.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((192, 144), Image.Resampling.BICUBIC)
        pixels = np.clip(np.asarray(coarse) + random.normal(0, 12, (144, 192, 3)), 0, 255).astype(np.uint8)
        path = folder / f"class {number % CLASSES}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=90)
    return folder


def ours(collection: Collection) -> Callable[[], None]:
    options = TrainOptions("folder:images", batch_size=BATCH, workers=0)
    model: Any = SimpleNamespace(preprocessing=SEEN)
    batches = TrainingBatches(options, collection["train"], model)
    return lambda: drained(batches.epoch(0))


def torchvisions(images: Path) -> Callable[[], None]:
    """As everybody writes it."""
    steps = [transforms.RandomResizedCrop(SEEN.size), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    data = ImageFolder(images, transforms.Compose([*steps, transforms.Normalize(SEEN.mean, SEEN.std)]))
    return lambda: drained(iter(DataLoader(data, batch_size=BATCH, shuffle=True)))


def drained(batches: Iterator[Any]) -> None:
    assert sum(len(batch[0]) for batch in islice(batches, BATCHES)) == BATCH * BATCHES


def rows(model: nn.Module, pictures: torch.Tensor, batch_size: int) -> Callable[[], object]:
    items: Any = [(picture, 0, index) for index, picture in enumerate(pictures)]
    return lambda: embed(model, items, batch_size=batch_size)


def comparisons(images: Path, folder: Path) -> Iterator[Comparison]:
    files = open_data(f"folder:{images}", test_fraction=0)
    peer, name = torchvisions(images), "torchvision's ImageFolder, RandomResizedCrop, flip, to tensor, normalise"
    size = f"{BATCH * BATCHES} images at {SEEN.size} px"
    for side, goal in ((0, 3.0), (SEEN.resize, 3.0)):
        kept, _ = decoded(files, folder / "cache", side, SEEN.interpolation)
        what = f"{size} from a cache {f'of shorter side {side}' if side else 'of whole images'}"
        yield Comparison(name=what, ours=ours(kept), peer=peer, peer_name=name, goal=goal, threads=1)
    yield Comparison(name=f"{size} from files", ours=ours(files), peer=peer, peer_name=name, threads=1)
    model = Embedder("tf_efficientnet_lite0", head="none", pretrained="none", size=224).eval()
    pictures = torch.randn(BATCH, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    yield Comparison(
        name=f"{BATCH} images at 224 px through EfficientNet-Lite0, folded and channels-last, 64 at a time",
        ours=rows(for_inference(model), pictures, 64),
        peer=rows(model, pictures, 128),
        peer_name="the model as it is, 128 at a time",
        goal=1.5,
        rounds=6,
    )


def effects(images: Path) -> tuple[dict[str, object], list[str]]:
    """How far the same crops of smaller images are from those of whole ones: in pixels, and as frozen rows."""
    train = open_data(f"folder:{images}", test_fraction=0)["train"]
    model = for_inference(Embedder("tf_efficientnet_lite0", head="none", pretrained="offline", size=SEEN.size))
    assert model.preprocessing is not None
    found, lines = {}, ["", "## Crops of smaller images", "| shorter side | mean difference of a pixel, of 255 | cosine of frozen rows |"]
    lines.append("|---:|---:|---|")

    def crops(side: int) -> torch.Tensor:
        options = TrainOptions("folder:images", batch_size=BATCH, workers=0, cache_side=side)
        return torch.cat([batch[0] for batch in islice(TrainingBatches(options, train, model).epoch(0), BATCHES)])

    def rows_of(crops: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return torch.cat([model(some) for some in crops.split(64)])

    whole = crops(0)
    for side in SIDES:
        smaller = crops(side)
        pixels = float((smaller - whole).abs().mean()) * model.preprocessing.std[0] * 255 / model.preprocessing.range
        cosines = (rows_of(smaller) * rows_of(whole)).sum(dim=1)
        found[str(side)] = {"pixels": pixels, "cosine": float(cosines.mean()), "cosine, lowest 5 %": float(cosines.quantile(0.05))}
        lines.append(f"| {side} | {pixels:.2f} | {float(cosines.mean()):.4f}; lowest 5 %: {float(cosines.quantile(0.05)):.4f} |")
    return {"crops of smaller images": found}, lines


def main() -> None:
    with TemporaryDirectory() as folder:
        given = os.environ.get("OBDSD_IMAGES")
        images = Path(given).expanduser() if given else make_up(Path(folder) / "images")
        what = "images that were given" if given else "made-up images"
        title = f"From images to rows ({what}, one process, no workers)"
        run(title, "loader", comparisons(images, Path(folder)), lambda measurements: effects(images))
