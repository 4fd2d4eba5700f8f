"""Distil a big model into a small one: features at 224 px teach a whole network at 96 px, with labels and without."""

from __future__ import annotations

from typing import Any

from obdsd import cli
from obdsd.files import read_mapping, write_json
from obdsd.training import RunRecord
from study.reading import Rows
from study.records import RESULTS, SCRATCH

FILE = RESULTS / "teachers.json"
FOLDER = SCRATCH / "teachers"
TEACHER = FOLDER / "teacher.parquet"
BACKBONE = "tf_efficientnet_lite0"
SEEDS = 2
TAUGHT = ["--teacher", f"embeddings(file={TEACHER})", "--targets", "pairwise", "--temperature", "0.1", "--ramp", "constant"]
ROWS = {
    "plain loss": ["--lr", "1e-5"],
    "with labels, taught": ["--lr", "1e-4", *TAUGHT, "--weight", "100"],
    "without labels, taught": ["--lr", "1e-4", "--supervision", "none", "--loss", "none", *TAUGHT],
}
"""Learning rates by held-out classes, of two that were tried for the plain loss; the others' was not searched."""
KEPT = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r")


def run_teachers(cub: str) -> None:
    """Train a network at 96 px on CUB: by labels, by labels and rows of images at 224 px, by these rows alone."""
    data = f"cub200:{cub}"
    if not TEACHER.exists():
        _do("embed", f"{BACKBONE}:offline", data, "--size", "224", "--out", str(TEACHER))
    found: dict[str, Any] = {}
    for row, flags in ROWS.items():
        for seed in range(SEEDS):
            record = _trained(row, seed, data, flags)
            found.setdefault(row, []).append({name: record.scores[name] for name in KEPT})
            found["frozen features"] = [{name: record.reference["frozen features at 96 px"][name] for name in KEPT}]
            write_json(FILE, found)


def _trained(row: str, seed: int, data: str, flags: list[str]) -> RunRecord:
    out = FOLDER / f"{row.replace(', ', '-').replace(' ', '-')}-{seed}"
    if not (out / "result.json").exists():
        whole = ["--no-frozen", "--backbone", BACKBONE, "--pretrained", "offline", "--size", "96", "--epochs", "3", "--no-report"]
        more = ["--cache", str(FOLDER / "cache"), "--workers", "0", "--seed", str(seed), "--out", str(out)]
        _do("train", data, *whole, *flags, *more, *["--resume"] * out.exists())
    return RunRecord.read(out)


def _do(*words: str) -> None:
    if cli.main(words):
        raise SystemExit(f"obdsd {words[0]} failed")


def teachers_table(_: str) -> Rows:
    """A row for each way to learn, the mean over seeds."""
    yield ["", "Recall@1", "of each seed", "Recall@8", "MAP@R"]
    record = read_mapping(FILE)
    for row in ("frozen features", *ROWS):
        runs = record[row]
        mean = {name: sum(run[name] for run in runs) / len(runs) for name in KEPT}
        each = ", ".join(f"{100 * run['recall@1']:.1f}" for run in runs) if len(runs) > 1 else ""
        yield [row, f"{100 * mean['recall@1']:.1f}", each, f"{100 * mean['recall@8']:.1f}", f"{100 * mean['map@r']:.1f}"]
