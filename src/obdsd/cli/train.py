"""`obdsd train`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from obdsd.cli.report import write_at_the_end
from obdsd.errors import Terminated
from obdsd.processes import first_process
from obdsd.settings import TrainOptions
from obdsd.training import train
from obdsd.training.run import run_path
from obdsd.training.runs import RunFolder


def run(options: TrainOptions) -> None:
    try:
        result = train(options)
    except (KeyboardInterrupt, Terminated):
        folder = RunFolder(run_path(options))
        if (folder.path / "config.yaml").exists() and first_process():
            print(f"stopped; {folder.path} keeps everything so far: the same command with --resume goes on from there", file=sys.stderr)
        raise
    if not first_process():
        return
    print(f"{options.score} classes, {result.chosen_by} (epoch {result.epoch + 1} of {options.epochs}):")
    print(_line("trained", result.record["scores"]))
    for name, scores in (result.record["reference"] or {}).items():
        print(_line(f"{name}, untrained", scores))
    print(f"model: {result.folder / 'model'}")
    print(f"scores: {result.folder / 'result.json'}")
    if options.report:
        write_at_the_end(result.folder, options.device)


def _line(name: str, scores: Mapping[str, Any]) -> str:
    recalls = "  ".join(f"R@{k} {100 * value:.2f} %" for k, value in scores["recall"].items())
    clusters = "" if scores["nmi"] is None else f"  NMI {100 * scores['nmi']:.2f} %"
    return f"  {name}: {recalls}  MAP@R {100 * scores['map_at_r']:.2f} %{clusters}"
