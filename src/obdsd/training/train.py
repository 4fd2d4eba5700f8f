"""A training from its options to its result."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import torch
from torch import nn

from obdsd.options import TrainOptions
from obdsd.processes import first_process, processes
from obdsd.terminal import training_display
from obdsd.training import build
from obdsd.training.loggers import check_logger
from obdsd.training.loop import Loop
from obdsd.training.run_folder import RunFolder, RunRecord, data_record
from obdsd.training.stopping import Stop
from obdsd.training.trainer import Trainer


def train(options: TrainOptions, *, show: bool = True) -> RunRecord:
    """Train by the options and leave a run folder with a model folder in it.

    Raises an `InputError` of one line for everything that is the user's to mend. Whatever ends it early, `resume` goes on from the last
    checkpoint and comes to the same weights and numbers. SIGTERM and Ctrl-C let the step finish and write a checkpoint first.
    """
    check_logger(options.logger)
    path, show = run_path(options), show and first_process()
    with Stop() as stop, RunFolder(path, writes=first_process()) as folder:
        collection = build.collection_of(options)
        data, here = data_record(collection), {"threads": torch.get_num_threads(), "processes": processes()}
        state, remarks = folder.open(options, data, here)  # a folder in use is refused before the model is made
        trainer = Trainer(options, collection)
        if folder.is_new:
            folder.begin(options, data, here)
        loop = Loop(trainer, folder, stop)
        with trainer.ranks.together():
            if state is None:
                trainer.begin(partial(_train_first, options, path, trainer, show))
            else:
                loop.restore(state)
            with training_display(show)(options.epochs, len(trainer.batches), trainer.place.epoch) as display:
                for remark in remarks:
                    display.note(remark)
                loop.score_reference(display)
                loop.run(display)
                loop.finish(display)
    return RunRecord.read(path)


def _train_first(options: TrainOptions, path: Path, trainer: Trainer, show: bool) -> nn.Module:
    """The plain loss to its end, in a run of its own inside the run that it will teach; if it is finished, it is not repeated.

    Its time counts as this training's too.
    """
    first = path / "first"
    if (first / "result.json").exists():
        record = RunRecord.read(first)
    else:
        if show:
            print(f"first, the plain loss is trained in {first}; its model will teach", file=sys.stderr, flush=True)
        plain = {"teacher": "none", "preset": options.preset.partition("+")[0], "reference": False}
        record = train(options.replace(**plain, out=str(first), resume=(first / "config.yaml").exists()), show=show)
    trainer.place.seconds = record.seconds
    return record.model()


def run_path(options: TrainOptions) -> Path:
    """Where the run's folder is: `out`, or a name made of data, preset and seed."""
    if options.out is not None:
        return Path(options.out).expanduser()
    name, _, path = options.data.partition(":")
    return Path("runs") / f"{Path(path).stem or Path(name).stem}-{options.preset}-{options.seed}"
