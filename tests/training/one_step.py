"""One step of a training, its loss and gradients to a file: run by test_ranks.py in one process and in two."""

import json
import sys
from pathlib import Path

import torch

from obdsd.presets import preset
from obdsd.training.assembly import collection_of
from obdsd.training.loop import Training
from obdsd.training.runs import RunFolder


def one_step(name: str, options: dict) -> dict[str, torch.Tensor]:
    """Loss parts and gradients after the first batch of epoch 1, with a teacher that differs from the student."""
    chosen = preset(name, **options)
    training = Training(chosen, collection_of(chosen), RunFolder(Path("unused")))
    with torch.no_grad():
        for weight in training.system.teacher.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    training.progress.epoch = 1
    training.walk_the_training_set()
    inputs, labels, indices = next(training.batches.epoch(1))
    parts = training.step(inputs, labels, indices)
    found = {f"model {n}": p.grad for n, p in training.embedder.named_parameters()}
    found |= {f"objective {n}": p.grad for n, p in training.system.objective.named_parameters()}
    found |= {f"reading {n}": torch.tensor(value) for n, value in training.progress.reading.items()}
    found |= {f"teacher {n}": value for n, value in training.system.teacher.state_dict().items()}
    return {**found, **parts}


if __name__ == "__main__":
    plan, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    for number, (name, options) in enumerate(plan):
        found = one_step(name, options)
        torch.save(found, out / f"{number}-rank-{torch.distributed.get_rank()}.pt")
