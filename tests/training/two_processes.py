"""Steps and whole trainings in the two processes of one start: run by test_ranks.py, whose plan names them."""

import atexit
import contextlib
import io
import itertools
import json
import os
import sys
from pathlib import Path
from unittest.mock import patch

import torch

from obdsd.cli import main
from obdsd.errors import Terminated
from obdsd.presets import preset
from obdsd.training import Trainer, train
from tests.training.reading import trainer_of, with_own_parts

LEARNED = ("teacher.", "targets.", "objective.loss.adam.", "objective.miner.p", "policy.", "assigned", "network.", "keys", "cluster_of")
"""What a system has learned beside its parameters."""


@with_own_parts
def one_step(name: str, options: dict) -> dict[str, torch.Tensor]:
    """Loss parts and gradients after a batch of epoch 1, with a teacher that differs from the student: after the first, or that of number
    `at`, or after as many `steps`."""
    at, steps = options.get("at", 0), options.get("steps", 1)
    trainer = trainer_of(preset(name, **{option: value for option, value in options.items() if option not in ("at", "steps")}))
    with torch.no_grad():
        for weight in trainer.system.teacher.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    trainer.place.epoch = 1
    trainer.begin_epoch()
    trainer.place.step = at
    for batch in itertools.islice(trainer.batches.epoch(1), at, at + steps):
        parts = trainer.step(*batch)
    after = {f"gradient {n}": p.grad for n, p in trainer.system.named_parameters() if p.grad is not None}
    after |= {f"reading {n}": torch.tensor(value) for n, value in trainer.place.reading.items()}
    after |= {f"state {n}": value for n, value in trainer.system.state_dict().items() if n.startswith(LEARNED)}
    after |= {f"state {n}": value for n, value in trainer.system.named_buffers(recurse=False)}
    after |= {f"kept {n}": value for n, value in trainer.kept.state_dict().items() if trainer.average is not None}
    return {**after, **parts}


def stopped_and_resumed(options, step: int) -> None:
    """A training that ends before its `step`-th step, counted over both generations, then goes on; with 0 it is not stopped."""
    take, calls = Trainer.step, []

    def stopping(self, *batch):
        calls.append(self)
        if len(calls) == step:
            raise Terminated
        return take(self, *batch)

    Trainer.step = stopping
    try:
        train(options, show=False)
    except Terminated:
        train(options.replace(resume=True), show=False)
    finally:
        Trainer.step = take


@contextlib.contextmanager
def machine_of_its_own(folder: Path):
    """As if the process ran on another machine than the other: it sees a folder of its own, and is the first there."""
    with patch.dict(os.environ, LOCAL_RANK="0", LOCAL_WORLD_SIZE="1"), contextlib.redirect_stderr(io.StringIO()) as said:
        os.chdir(folder)
        yield said


if __name__ == "__main__":
    plan, out, rank = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[1]).parent, os.environ["RANK"]
    atexit.register(lambda: (out / f"connected-{rank}").write_text(str(torch.distributed.is_initialized())))  # after the engine's own
    for number, (name, options) in enumerate(plan["steps"]):
        torch.save(one_step(name, options), out / f"{number}-rank-{rank}.pt")
    for number, words in enumerate(plan["commands"]):
        (out / f"code-{number}-rank-{rank}").write_text(str(main(words)))
    for name, options, step in plan["stopped"]:
        with machine_of_its_own(out / f"stopped-{step}" / rank):
            stopped_and_resumed(preset(name, **options), step)
    for case, words in plan["apart"].items():
        with machine_of_its_own(out / case / rank) as said:
            Path("code").write_text(str(main(words)))
        (out / case / rank / "said").write_text(said.getvalue())
