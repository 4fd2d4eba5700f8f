"""Records of finished runs: options, scores and curves, without the weights. A run that has a record is not repeated.

A run's name is `REGIME/...`, as `cub-linear-free/test/psd/seed-0`. Its record is a line of results/REGIME/runs.jsonl.xz; the lines are
sorted by name. `xzcat results/glyphs/runs.jsonl.xz | less` shows them.
"""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from obdsd.experiments.runs import carry_out
from obdsd.files import check_format, replacing
from obdsd.options import TrainOptions
from obdsd.training import RunRecord

Record = Mapping[str, Any]

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
SCRATCH = ROOT / "study" / "out"
RUNS = "runs.jsonl.xz"
FORMAT = 1  # of a record
POINTS = 15  # of a curve that a record keeps, beside those that were scored
SCORED = ("scores", "reranked", "epoch", "chosen_by", "train", "validation", "reference")
KEPT = (*SCORED, "seconds", "threads", "processes", "device", "versions")

_cache: dict[Path, tuple[tuple[int, int], dict[str, Record]]] = {}  # by file: which version of it was read, and its runs


def records(folder: str) -> dict[str, Record]:
    """All records below a folder of names, by the rest of their names: those of `trials/cub`, or of a whole regime."""
    regime, _, inside = folder.partition("/")
    start = f"{inside}/" if inside else ""
    return {run.removeprefix(start): record for run, record in _runs(regime).items() if run.startswith(start)}


def find(name: str) -> Record | None:
    """The record of a run, if there is one."""
    regime, _, run = name.partition("/")
    return _runs(regime).get(run)


def forget(name: str) -> None:
    """Remove the record of a run, so that the run can be repeated."""
    if find(name) is None:
        raise SystemExit(f"there is no record of {name}")
    add(name, None)


def _runs(regime: str) -> dict[str, Record]:
    """The records of a regime, read again only if the file has changed."""
    file = RESULTS / regime / RUNS
    if not file.exists():
        return {}
    state = file.stat()
    version = (state.st_ino, state.st_mtime_ns)
    if file not in _cache or _cache[file][0] != version:
        lines = [json.loads(line) for line in lzma.decompress(file.read_bytes()).splitlines()]
        for line in lines:
            check_format(file, "record", line, FORMAT, f"remove it with `python -m study forget {regime}/{line['name']}`")
        _cache[file] = version, {line.pop("name"): line for line in lines}
    return _cache[file][1]


def add(name: str, record: Record | None) -> None:
    """Write a regime's file anew with this record, or without one. Other processes wait meanwhile, so that none loses a record."""
    regime, _, run = name.partition("/")
    with locked(regime):
        runs = {**_runs(regime), run: record}
        lines = [json.dumps({"name": each, **kept}, allow_nan=False) + "\n" for each, kept in sorted(runs.items()) if kept is not None]
        with replacing(RESULTS / regime / RUNS) as file:
            file.write(lzma.compress("".join(lines).encode()))


def locked(regime: str) -> FileLock:
    """Around reading, changing and writing a file of a regime: one process at a time."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    return FileLock(SCRATCH / f"{regime}.lock")


def run_all(plan: Mapping[str, TrainOptions], jobs: int) -> None:
    """Train every run of the plan that has no record yet, by name."""
    due = {(name,): options.replace(out=str(SCRATCH / name)) for name, options in plan.items() if not recorded(name, options)}
    carry_out(due, jobs, True, lambda key: keep(key[0], due[key]))


def keep(name: str, options: TrainOptions) -> None:
    """Add the record of a finished run and remove the run's folder."""
    add(name, record_of(options))
    shutil.rmtree(str(options.out))


def recorded(name: str, options: TrainOptions) -> bool:
    """Whether the run has a record. A record of other options is refused."""
    record = find(name)
    if record is None:
        return False
    defaults = settings_of(TrainOptions(options.data))  # for options that are newer than the record
    found, wanted = {**defaults, **record["options"]}, settings_of(options)
    differ = sorted(option for option in wanted if found[option] != wanted[option])
    if differ:
        raise SystemExit(
            f"the record of {name} has other options than planned ({', '.join(differ)}); "
            f"remove it with `python -m study forget {name}`, or give the run another name"
        )
    return True


def settings_of(options: TrainOptions) -> dict[str, Any]:
    """The options that change a run's numbers; where the data were is of no matter."""
    return {name: value for name, value in options.identity().items() if name != "data"}


def record_of(options: TrainOptions) -> dict[str, Any]:
    """Options, result and thinned curve of a finished run, and the commit that it was made with."""
    run = RunRecord.read(str(options.out))
    every = max(1, len(run.metrics) // POINTS)
    kept = [line for number, line in enumerate(run.metrics, start=1) if number % every == 0 or "validation" in line or "test" in line]
    curve = [{name: line[name] for name in line if name not in ("seconds", "items_per_second")} for line in kept]
    per_class = {name: run.per_class[name] for name in ("queries", "recall@1")}
    result = {name: getattr(run, name) for name in KEPT}
    return _rounded(
        {"format": FORMAT, "options": settings_of(options), "commit": commit_of(ROOT), **result, "per_class": per_class, "curve": curve}
    )


def commit_of(root: Path) -> str:
    """The commit of the code, marked if files were changed since. New records do not count as a change."""

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!results")
    return git("describe", "--always") + ("-dirty" if changed else "")


def _rounded(value: Any) -> Any:
    """Six figures are more than any seed repeats on another machine."""
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
