"""A finished run as one small file under results/: its options, scores and curves, without its weights. Such a run is not repeated."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from obdsd.experiments.comparison import carry_out, read_result
from obdsd.files import replacing
from obdsd.settings import TrainOptions
from obdsd.training.runs import OF_THE_COMMAND, OF_THE_MACHINE, RunFolder

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
SCRATCH = ROOT / "study" / "out"
POINTS = 15  # of a curve that a record keeps, beside those that were scored
OF_THE_PLACE = (*OF_THE_MACHINE, *OF_THE_COMMAND, "data", "teacher_model")


def run_all(plan: Mapping[str, TrainOptions], jobs: int) -> None:
    """Train whatever of `plan` has no record yet; a name is a path under results/, without its suffix."""
    due = {(name,): replace(options, out=str(SCRATCH / name)) for name, options in plan.items() if not recorded(name, options)}

    carry_out(due, jobs, True, lambda key: keep(key[0], due[key]))
    for (name,), options in due.items():  # finished before, but stopped before its record was written
        if not (RESULTS / f"{name}.json").exists():
            keep(name, options)


def keep(name: str, options: TrainOptions) -> None:
    """Write the record of a finished run and remove its folder."""
    with replacing(RESULTS / f"{name}.json") as file:
        file.write(json.dumps(record_of(options), allow_nan=False).encode() + b"\n")
    shutil.rmtree(str(options.out))


def recorded(name: str, options: TrainOptions) -> bool:
    """Whether there is a record; one of other options must not be taken for this run."""
    file = RESULTS / f"{name}.json"
    if not file.exists():
        return False
    usual = settings_of(TrainOptions(options.data))  # also of options that came after the record
    found, wanted = {**usual, **json.loads(file.read_text())["options"]}, settings_of(options)
    differ = sorted(name for name in wanted if found[name] != wanted[name])
    if differ:
        raise SystemExit(f"{file}: has other options than planned ({', '.join(differ)}); remove it, or name the run otherwise")
    return True


def settings_of(options: TrainOptions) -> dict[str, Any]:
    return {name: value for name, value in asdict(options).items() if name not in OF_THE_PLACE}


def record_of(options: TrainOptions) -> dict[str, Any]:
    """Options, result and a thinned curve of a finished run, and the commit that it was made with."""
    folder = Path(str(options.out))
    result = read_result(folder)
    classes = result.pop("per_class")
    lines = RunFolder(folder).metrics()
    every = max(1, len(lines) // POINTS)
    kept = [line for number, line in enumerate(lines, start=1) if number % every == 0 or "validation" in line]
    curve = [{name: line[name] for name in line if name not in ("seconds", "items_per_second")} for line in kept]
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    per_class = {"queries": classes["queries"], "recall": {"1": classes["recall"]["1"]}}
    return _rounded({"options": settings_of(options), "commit": commit, **result, "per_class": per_class, "curve": curve})


def _rounded(value: Any) -> Any:
    """Six figures are more than any seed repeats on another machine."""
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def records(folder: str) -> dict[str, dict[str, Any]]:
    """All records below a folder of results/, by name."""
    files = sorted((RESULTS / folder).rglob("*.json"))
    return {str(file.relative_to(RESULTS / folder).with_suffix("")): json.loads(file.read_text()) for file in files}
