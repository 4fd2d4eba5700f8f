"""From which similarity on does something fit? What frozen features give, by the functions of `obdsd calibrate`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from obdsd.data import open_data
from obdsd.evaluation import Points
from obdsd.files import read_mapping, write_json
from obdsd.search.calibration import calibrate
from study.plan import LETTERS
from study.reading import Rows
from study.records import RESULTS, SCRATCH
from study.suspects import CUB

FILE = RESULTS / "calibration.json"
RATES = (0.1, 0.01, 0.001)


def run_calibration() -> None:
    """Measure thresholds on test classes, with the training classes in the collection; the step suspects makes the features."""
    found: dict[str, Any] = {}
    for data, file in (("CUB-200-2011, 224 px", CUB), ("letters", LETTERS)):
        collection = open_data(str(SCRATCH / file))
        train, test = collection["train"], collection["test"]
        known = Points(train.matrix(), np.char.add("train ", train.classes.astype(str)))
        found[data] = asdict(calibrate(test.matrix(), test.classes, RATES, collection=known))
    write_json(FILE, found)


def calibration_table(_: str) -> Rows:
    """A row for each data set and rate."""
    yield ["", "false-match rate", "similarity", "misses (FNMR)", "95 % over classes", "single pairs: similarity", "FNMR"]
    for data, found in read_mapping(FILE).items():
        for each in found["thresholds"]:
            low, high = (100 * share for share in each["misses_interval"])
            pairs = [f"{each['pair_similarity']:.3f}", f"{100 * each['pair_misses']:.1f} %"]
            cells = [f"{each['similarity']:.3f}", f"{100 * each['misses']:.1f} %", f"{low:.1f} to {high:.1f}", *pairs]
            yield [data, f"{100 * each['rate']:g} %", *cells]
        similarity, rate = found["half"]
        yield [data, f"{100 * rate:.0f} %", f"{similarity:.3f}", "50.0 %", "", "", ""]
