"""A training from its options to its result."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from obdsd.data import Collection
from obdsd.data.fingerprint import fingerprint
from obdsd.processes import first_process
from obdsd.settings import TrainOptions
from obdsd.training import assembly
from obdsd.training.display import display_for
from obdsd.training.loop import Training
from obdsd.training.runs import RunFolder, RunResult
from obdsd.training.stopping import Stop


def train(options: TrainOptions, *, show: bool = True) -> RunResult:
    """Train by the options and leave a run folder with a model folder in it.

    Raises an `InputError` of one line for everything that is the user's to mend. Whatever ends it early, `resume` goes on from the last
    checkpoint and comes to the same weights and numbers. SIGTERM and Ctrl-C let the step finish and write a checkpoint first.
    """
    folder = RunFolder(run_path(options), writes=first_process())
    show = show and first_process()
    with Stop() as stop, folder:
        collection = assembly.collection_of(options)
        training = Training(options, collection, folder, stop)
        state, remarks = folder.open(options, data_record(collection), training.here)
        if options.teacher == "born-again" and state is None:
            training.begin_again(train_first_generation(options, folder.path, show))
        with display_for(show)(options.epochs, len(training.batches), 0 if state is None else state["epoch"]) as display:
            for remark in remarks:
                display.say(remark)
            with training.ranks.together():
                training.score_reference(display)
                if options.head_init == "projection" and state is None:
                    training.project_head(display)
                training.restore(state)
                training.run(display)
                return training.finish(display)


def train_first_generation(options: TrainOptions, path: Path, show: bool) -> RunFolder:
    """The plain loss to its end, in a run of its own inside the run that it will teach (BAR); what is there of it is not repeated."""
    first = RunFolder(path / "first")
    if not first.result_file.exists():
        begun = (first.path / "config.yaml").exists()
        if show:
            print(f"born again: the first generation, in {first.path}; it will teach the second", file=sys.stderr, flush=True)
        train(replace(options, teacher="none", reference=False, out=str(first.path), resume=begun), show=show)
    return first


def data_record(collection: Collection) -> dict[str, Any]:
    """What tells these data from others."""
    return {name: {"items": len(part), "fingerprint": fingerprint(part)} for name, part in collection.parts.items()}


def run_path(options: TrainOptions) -> Path:
    """Where the run's folder is: `out`, or a name made of data, preset and seed."""
    if options.out is not None:
        return Path(options.out).expanduser()
    name, _, path = options.data.partition(":")
    return Path("runs") / f"{Path(path).stem or Path(name).stem}-{options.preset}-{options.seed}"
