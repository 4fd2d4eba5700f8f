"""Do the offline weights sit where they belong? Recall@1 of their features on CUB, with the right and the usual preprocessing.

    python -m benchmarks.offline_weights DATA

DATA is CUB-200-2011 (the folder with `images/`, at any size). Nothing is trained.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import v2

from obdsd.evaluation import evaluate
from obdsd.models import Embedder
from obdsd.preprocessing import Preprocessing

RESULT = Path(__file__).parent / "results" / "offline_weights.json"
SIZE, BATCH = 128, 64
RESIZES = (128, 144)  # the whole shorter side, or a closer look at its middle


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline_weights", description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, metavar="DATA", help="CUB-200-2011, the folder with images/")
    data = parser.parse_args().data
    embedder = Embedder("tf_efficientnet_lite0", pretrained="offline", head="none", pooling="avg").eval()
    results = []
    for resize in RESIZES:
        pixels, labels = read_test_half(data, resize)
        right = replace(embedder.preprocessing, size=SIZE, resize=resize)
        for name, preprocessing in {"the package's": right, "the usual": Preprocessing(size=SIZE, resize=resize)}.items():
            print(f"{name} mean and std, {SIZE} px of {resize}", flush=True)
            score = round(100 * evaluate(embed(embedder, pixels, preprocessing), labels, ks=(1,), clusters=False)["recall@1"], 2)
            results.append({"name": name, "recall@1": score, "images": len(labels), "preprocessing": asdict(preprocessing)})
            print(f"  Recall@1 {score} % on {len(labels)} images", flush=True)
    versions = {package: version(package) for package in ("obdsd", "torch", "timm", "torchvision")}
    RESULT.write_text(json.dumps({"versions": versions, "results": results}, indent=2) + "\n")
    print(f"written to {RESULT}")


def read_test_half(data: Path, resize: int) -> tuple[torch.Tensor, np.ndarray]:
    """Classes 101 to 200: shorter side resized, centre crop 128, as bytes (n, 3, 128, 128)."""
    classes = sorted(folder for folder in (data / "images").iterdir() if folder.is_dir())[100:]
    files = [(path, label) for label, folder in enumerate(classes) for path in sorted(folder.glob("*.jpg"))]
    crop = v2.Compose([v2.Resize(resize, v2.InterpolationMode.BILINEAR, antialias=True), v2.CenterCrop(SIZE), v2.PILToTensor()])
    images = []
    for path, _ in files:
        with Image.open(path) as image:
            images.append(crop(image.convert("RGB")))
    return torch.stack(images), np.array([label for _, label in files])


@torch.inference_mode()
def embed(embedder: Embedder, pixels: torch.Tensor, preprocessing: Preprocessing) -> np.ndarray:
    mean, std = (torch.tensor(values)[:, None, None] for values in (preprocessing.mean, preprocessing.std))
    return torch.cat([embedder((batch * (preprocessing.range / 255) - mean) / std) for batch in pixels.split(BATCH)]).numpy()


if __name__ == "__main__":
    main()
