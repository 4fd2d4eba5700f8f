"""Do the offline weights sit where they belong? Recall@1 of their features on CUB, with the right and the usual preprocessing.

    python -m benchmarks.offline_weights DATA

DATA is CUB-200-2011 (the folder with `images/`, at any size). Nothing is trained.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import v2

from obdsd.evaluation import evaluate
from obdsd.models import Embedder
from obdsd.models.weights import OFFLINE
from obdsd.preprocessing import Preprocessing

RESULT = Path(__file__).parent / "results" / "offline_weights.json"
SIZES, BATCH = (128, 224), 64
USUAL = Preprocessing()  # the mean and std that most ImageNet weights expect
NUMBERS = ("mean", "std", "range")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline_weights", description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, metavar="DATA", help="CUB-200-2011, the folder with images/")
    files = test_half(parser.parse_args().data)
    labels = np.array([path.parent.name for path in files])
    versions = {package: version(package) for package in ("obdsd", "torch", "timm", "torchvision", *OFFLINE.values())}
    results = []
    for size in SIZES:
        for backbone in OFFLINE:
            embedder = Embedder(backbone, pretrained="offline", head="none", pooling="avg").eval()
            right = embedder.preprocessing.at(size)  # the same margin around the centre crop as in their training
            usual = replace(right, **{name: getattr(USUAL, name) for name in NUMBERS})
            for name, rows in embedded(embedder, files, {"the package's": right, "the usual": usual}).items():
                score = round(100 * evaluate(rows, labels, ks=(1,), clusters=False)["recall@1"], 2)
                about = asdict(right if name == "the package's" else usual)
                results.append({"backbone": backbone, "name": name, "recall@1": score, "images": len(labels), "preprocessing": about})
                print(f"{backbone}, {size} px of {right.resize}, {name} mean and std: Recall@1 {score} %, {len(labels)} images", flush=True)
            RESULT.write_text(json.dumps({"versions": versions, "results": results}, indent=2) + "\n")
    print(f"written to {RESULT}")


def test_half(data: Path) -> list[Path]:
    """The images of classes 101 to 200."""
    classes = sorted(folder for folder in (data / "images").iterdir() if folder.is_dir())[100:]
    return [path for folder in classes for path in sorted(folder.glob("*.jpg"))]


@torch.inference_mode()
def embedded(embedder: Embedder, files: list[Path], ways: dict[str, Preprocessing]) -> dict[str, np.ndarray]:
    """Rows of the files for each way to prepare them, which differ in their numbers alone."""
    embedder.to(memory_format=torch.channels_last)
    rows: dict[str, list[torch.Tensor]] = {name: [] for name in ways}
    for pixels in batches(files, next(iter(ways.values()))):
        for name, way in ways.items():
            mean, std = (torch.tensor(values)[:, None, None] for values in (way.mean, way.std))
            images = (pixels * (way.range / 255) - mean) / std
            rows[name].append(embedder(images.contiguous(memory_format=torch.channels_last)))
    return {name: torch.cat(own).numpy() for name, own in rows.items()}


def batches(files: list[Path], way: Preprocessing) -> Iterator[torch.Tensor]:
    """Shorter side resized, centre crop, as bytes (n, 3, size, size)."""
    crop = v2.Compose([v2.Resize(way.resize, v2.InterpolationMode.BILINEAR, antialias=True), v2.CenterCrop(way.size), v2.PILToTensor()])
    for start in range(0, len(files), BATCH):
        images = []
        for path in files[start : start + BATCH]:
            with Image.open(path) as image:
                images.append(crop(image.convert("RGB")))
        yield torch.stack(images)


if __name__ == "__main__":
    main()
