"""`obdsd train`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from obdsd.cli.report import write_at_the_end
from obdsd.errors import FinishedError, Terminated
from obdsd.processes import first_process
from obdsd.settings import TrainOptions
from obdsd.training import train
from obdsd.training.run import run_path
from obdsd.training.runs import RunFolder


def run(options: TrainOptions) -> None:
    folder = RunFolder(run_path(options))
    try:
        record = train(options).record
    except FinishedError:
        if first_process():
            print(f"{folder.path} is finished: nothing was left to do", file=sys.stderr)
        record = folder.result()
    except (KeyboardInterrupt, Terminated):
        if (folder.path / "config.yaml").exists() and first_process():
            print(f"stopped; {folder.path} keeps everything so far: the same command with --resume goes on from there", file=sys.stderr)
        raise
    if not first_process():
        return
    print(f"{options.score} classes, {record['chosen_by']} (epoch {record['epoch'] + 1} of {options.epochs}):")
    print(_line("trained", record["scores"]))
    for name, scores in (record["reference"] or {}).items():
        print(_line(f"{name}, untrained", scores))
    untrained = max((scores["recall@1"] for scores in (record["reference"] or {}).values()), default=0.0)
    if (lost := untrained - record["scores"]["recall@1"]) > 0:
        begun_at_random = options.head != "none" and options.head_init == "random"
        advice = (
            "begin with --head linear --head_init projection"
            if begun_at_random
            else "choose epochs and lr on held-out classes (--val-fraction 0.3)"
        )
        print(f"  R@1 is {100 * lost:.1f} points below what was there untrained: {advice}")
    print(f"model: {folder.path / 'model'}")
    print(f"scores: {folder.result_file}")
    if options.report:
        write_at_the_end(folder.path, options.device)


def _line(name: str, scores: Mapping[str, Any]) -> str:
    recalls = "  ".join(f"R@{k[7:]} {100 * value:.2f} %" for k, value in scores.items() if k.startswith("recall@"))
    clusters = "" if scores["nmi"] is None else f"  NMI {100 * scores['nmi']:.2f} %"
    return f"  {name}: {recalls}  MAP@R {100 * scores['map@r']:.2f} %{clusters}"
