"""Does the method help? Search settings on held-out classes, then test them. Finished runs are recorded under results/ and not repeated.

The usual order: features, search REGIME, settle REGIME (then commit), test REGIME, tables. `python -m study STEP --help` has the options.
"""

from __future__ import annotations

import argparse
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import study.parts  # noqa: F401  registers parts that rows are made of
from obdsd import cli
from obdsd.errors import InputError
from obdsd.processes import keep_memory
from study import arena, calibration, records, reranking, search, suspects, tables, teachers, testing, trials, variants, walk
from study.plan import CUB, CUB_224, CUB_GEM, CUB_LITE2, LETTERS, LETTERS_GEM, LETTERS_LITE2, REGIMES, ROWS


def compute_features(cub: str) -> None:
    """Compute frozen features of CUB-200-2011 and of the built-in letters, once."""
    photos, lite0, lite2 = f"cub200:{cub}", "tf_efficientnet_lite0:offline", "tf_efficientnet_lite2:offline"
    for name, model, data, size, pooling in (
        (CUB, lite0, photos, 128, "avg"), (CUB_224, lite0, photos, 224, "avg"), (LETTERS, lite0, "glyphs", 64, "avg"),
        (CUB_GEM, lite0, photos, 224, "gem"), (LETTERS_GEM, lite0, "glyphs", 64, "gem"), (CUB_LITE2, lite2, photos, 260, "gem"),
        (LETTERS_LITE2, lite2, "glyphs", 260, "gem"),
    ):  # fmt: skip
        file = records.SCRATCH / name
        how = ["--size", str(size), "--pooling", pooling, "--out", str(file)]
        if not file.exists() and cli.main(["embed", model, data, *how]):
            raise SystemExit("the features could not be computed")


STEPS: dict[str, Callable[..., None]] = {
    "features": compute_features,
    "search": search.search,
    "settle": search.settle,
    "test": testing.on_test_classes,
    "noise": testing.noise,
    "equal": testing.equal,
    "replacement": testing.replacement,
    "untrained": testing.untrained,
    "times": testing.times,
    "walk": walk.write_shares,
    "reranking": reranking.write_reranking,
    "reach": reranking.write_reach,
    "other-ways": reranking.write_other_ways,
    "suspects": suspects.run_suspects,
    "calibration": calibration.run_calibration,
    "similarities": arena.write_similarities,
    "arena": arena.run_arena,
    "teachers": teachers.run_teachers,
    "trials": trials.run_trials,
    "variants": variants.run_variants,
    "beginnings": variants.run_beginnings,
    "curves": search.curves,
    "tables": tables.write_all,
    "forget": records.forget,
}
"""A step's arguments are those of its function."""


def row_names(text: str) -> tuple[str, ...]:
    """`ms,psd` as names of rows."""
    rows = tuple(text.split(","))
    if unknown := sorted({*rows} - {*ROWS}):
        raise argparse.ArgumentTypeError(f"there is no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return rows


ARGUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "regime": ("regime", {"choices": REGIMES, "metavar": "REGIME", "help": f"one of {', '.join(REGIMES)}"}),
    "name": ("name", {"metavar": "NAME", "help": "the run's name, as glyphs/test/ms/seed-0"}),
    "cub": ("--cub", {"required": True, "metavar": "FOLDER", "help": "the folder CUB_200_2011"}),
    "rows": ("--rows", {"type": row_names, "metavar": "ROWS", "help": "names of rows, as ms,psd (default: all that the step is about)"}),
    "seeds": ("--seeds", {"type": int, "metavar": "N", "help": "no more seeds than this (default: %(default)s)"}),
    "head": ("--head", {"choices": tuple(variants.SETTINGS), "help": "which head (default: %(default)s)"}),
    "jobs": ("--jobs", {"type": int, "metavar": "N", "help": "runs at a time (default: the number of cores)"}),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    for name, run in STEPS.items():
        sentence = str(inspect.getdoc(run)).partition("\n")[0]
        step = steps.add_parser(name, help=sentence, description=sentence)
        for parameter in inspect.signature(run).parameters.values():
            flag, details = ARGUMENTS[parameter.name]
            default = os.cpu_count() if parameter.name == "jobs" else parameter.default
            step.add_argument(flag, default=default, **details)
    given = vars(parser.parse_args(argv))
    try:
        STEPS[given.pop("step")](**given)
    except InputError as fault:
        raise SystemExit(str(fault)) from fault


if __name__ == "__main__":
    keep_memory()
    main()
