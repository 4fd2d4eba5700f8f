"""A training in a process of its own that takes a step when it is asked to, so that two can take turns with allocators of their own.

`python -m benchmarks.stepping ours|tuned|usual '{"preset": …}'`: a line with what a step's share of an epoch's beginning takes, in
milliseconds; then for each line on standard input one step, and a line with the peak of its memory in KiB.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.harness import status_kib


class Stepper:
    """Such a process; a call of it is a step."""

    def __init__(self, kind: str, **options: Any) -> None:
        command = [sys.executable, "-m", "benchmarks.stepping", kind, json.dumps(options)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.once_ms = float(self.process.stdout.readline())

    def __call__(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("step", file=self.process.stdin, flush=True)
        self.peak_mib = int(self.process.stdout.readline()) / 1024

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def ours(options: dict[str, Any]) -> tuple[Callable[[], object], float]:
    """A step of this project's training, and its share of what is done once an epoch."""
    from obdsd.experiments.timing import Pace
    from obdsd.presets import preset
    from obdsd.processes import keep_memory

    keep_memory()
    pace = Pace(preset(options.pop("preset"), "glyphs", **options))
    return pace.step, 1e3 * pace.once


def by_hand(options: dict[str, Any], tuned: bool) -> Callable[[], object]:
    """The shortest loop that one would write with timm and pytorch-metric-learning, as it is or with the settings that make it fast."""
    import timm
    import torch
    from pytorch_metric_learning import losses, miners
    from torch import nn

    from obdsd.processes import keep_memory

    if tuned:
        keep_memory()
    backbone = timm.create_model(options["backbone"], num_classes=0)
    model = nn.Sequential(backbone, nn.Linear(backbone.num_features, 128))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    images = torch.randn(options["batch_size"], 3, options["size"], options["size"])
    if tuned:
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    labels = torch.arange(len(images) // 2).repeat_interleave(2)
    loss, miner = losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5), miners.MultiSimilarityMiner(epsilon=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, weight_decay=4e-4, fused=tuned)

    def step() -> None:
        rows = nn.functional.normalize(model(images))
        optimizer.zero_grad()
        loss(rows, labels, miner(rows, labels)).backward()
        optimizer.step()

    return step


def main(kind: str, written: str) -> None:
    options = json.loads(written)
    step, once = ours(options) if kind == "ours" else (by_hand(options, tuned=kind == "tuned"), 0.0)
    print(once, flush=True)
    for _ in sys.stdin:
        step()
        print(status_kib("VmHWM"), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
