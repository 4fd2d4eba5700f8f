"""A model by onnxruntime, as `obdsd index --engine onnx` runs it, beside torch as it runs it otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.metadata import version

import torch
from torch import Tensor, nn

from benchmarks.harness import Comparison, Measurement, run
from obdsd.models import Embedder, open_model
from obdsd.models.agreement import least_cosine
from obdsd.models.export import exported
from obdsd.models.inference import for_inference
from obdsd.models.onnx_engine import OnnxModel
from obdsd.processes import keep_memory

BATCH = 64  # that of obdsd index
SIZES = (96, 224)
MODELS = {
    "tf_efficientnet_lite0": lambda size: open_model("tf_efficientnet_lite0:offline", size=size),
    "resnet50": lambda size: Embedder("resnet50", pretrained="none", head="none", size=size).eval(),  # its weights do not change its speed
}


def rows(model: nn.Module, images: Tensor) -> Tensor:
    with torch.inference_mode():
        return model(images)


def comparisons() -> Iterator[Comparison]:
    for name, make in MODELS.items():
        for size in SIZES:
            model, images = make(size), torch.randn(BATCH, 3, size, size, generator=torch.Generator().manual_seed(0))
            ours, peer = OnnxModel(exported(model), name), for_inference(model)
            cosine = least_cosine(rows(peer, images).numpy(), rows(ours, images).numpy())
            assert cosine >= 0.99999, f"{name} at {size} px: {cosine}"
            title = f"{name}, {BATCH} images at {size} px"
            yield Comparison(name=title, ours=partial(rows, ours, images), peer=partial(rows, peer, images), peer_name="torch", rounds=7)


def more(measurements: list[Measurement]) -> tuple[dict[str, object], list[str]]:
    """The same as images a second."""
    packages = {package: version(package) for package in ("onnx", "onnxruntime")}
    lines = [
        "",
        f"*Ours* is onnxruntime {packages['onnxruntime']} on the CPU, without preprocessing in the file; *torch* is the model as "
        "`obdsd embed` and `obdsd index` run it: BatchNorm folded, channels last. The rows of both agree (cosine ≥ 0.99999). Reading and "
        "resizing of images come on top in both. onnxruntime keeps the memory that it once took, so the table does not show its peak.",
        "",
        "| what | onnxruntime, images/s | torch, images/s |",
        "|---|---:|---:|",
    ]
    lines += [f"| {m.name} | {1e3 * BATCH / m.ours_ms:,.0f} | {1e3 * BATCH / m.peer_ms:,.0f} |" for m in measurements]
    return packages, lines


def main() -> None:
    keep_memory()  # as the command line does
    run("An exported model beside torch", "export", comparisons(), more)


if __name__ == "__main__":
    main()
