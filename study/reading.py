"""Numbers from the records: means, differences paired by seed with their intervals, and what a gain is due to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from obdsd.experiments.comparison import differences_by_class
from obdsd.experiments.statistics import Interval, class_interval, t_interval
from obdsd.experiments.tables import ends
from study.plan import FOLDS, REGIMES, ROWS, TITLES, WALKS, control_of
from study.records import RESULTS, Record, records

Seeds = Mapping[int, Record]
Results = dict[str, Seeds]  # row → seed → record
Rows = Iterator[list[str]]  # of a table; the first is its header

SCORES: dict[str, Callable[[Record], float]] = {
    **{f"R@{k}": (lambda record, k=k: 100 * recall(record, k)) for k in (1, 2, 4, 8)},
    "MAP@R": lambda record: 100 * record["scores"]["map@r"],
    "NMI": lambda record: 100 * record["scores"]["nmi"],
}
GEOMETRY: dict[str, Callable[[Record], float]] = {
    "inside classes": lambda record: record["train"]["intra"],
    "between classes": lambda record: record["train"]["inter"],
    "density": lambda record: record["train"]["density"],
    "spectral decay": lambda record: record["train"]["spectral-decay"],
    "targets' entropy": lambda record: late_mean(record, "entropy"),
    "on the same class": lambda record: late_mean(record, "same_class"),
    "gradient share": lambda record: late_mean(record, "gradient_share"),
}
EQUAL = "mean-mix at the settings of obd-sd"
GRAPHLESS = ("mean-mix", EQUAL, "uniform-mix", "flat")
"""Controls: targets like OBD-SD's that know no graph."""


def recall(record: Record, k: int = 1) -> float:
    """Recall@k as a share."""
    return record["scores"][f"recall@{k}"]


def late_mean(record: Record, name: str) -> float:
    """Mean of a reading of the distillation over the second half of the curve; NaN without a teacher."""
    late = record["curve"][len(record["curve"]) // 2 :]
    values = [point["distillation"][name] for point in late if "distillation" in point]
    return float(np.mean(values)) if values else float("nan")


def mean_score(seeds: Seeds, score: str = "R@1") -> float:
    """Mean over seeds, in percent."""
    return float(np.mean([SCORES[score](record) for record in seeds.values()]))


def of_folds(runs: Mapping[str, Record], name: str) -> list[Record]:
    """The runs of a setting on every fold of the training classes; none if one is missing."""
    names = [f"{name}/fold-{fold}" for fold in range(len(FOLDS))]
    return [runs[each] for each in names] if runs.keys() >= {*names} else []


def by_seed(folder: str) -> Seeds:
    """Records of a folder whose names are `seed-0`, `seed-1`, …"""
    return {int(name.removeprefix("seed-")): record for name, record in records(folder).items()}


def results_of(regime: str, stage: str = "test") -> Results:
    """The records of a stage by row and seed."""
    rows: dict[str, dict[int, Record]] = {}
    for name, record in records(f"{regime}/{stage}").items():
        row, seed = name.split("/seed-")
        rows.setdefault(row, {})[int(seed)] = record
    return {row: dict(sorted(rows[row].items())) for row in ROWS if row in rows}


def tested_regimes(*rows: str) -> Iterator[tuple[str, Results]]:
    """The test results of each regime in which all these rows were tested."""
    for regime in TITLES:
        results = results_of(regime)
        if results and results.keys() >= {*rows}:
            yield regime, results


def chosen_of(regime: str) -> dict[str, Any]:
    """Settings that the held-out classes chose for each row, and the Recall@1 there."""
    return _small_file(regime, "chosen.json")


def times_of(regime: str) -> dict[str, float]:
    """How long a step of each row takes, relative to one of the plain loss."""
    return _small_file(regime, "times.json")


def _small_file(regime: str, name: str) -> dict[str, Any]:
    file = RESULTS / regime / name
    return json.loads(file.read_text()) if file.exists() else {}


def at_equal_settings(regime: str, walk: str) -> Results:
    """A row with a walk and its controls, all with the settings that were chosen for the walk."""
    chosen, results = chosen_of(regime), results_of(regime)
    wanted = {row: control_of(REGIMES[regime], row, chosen[walk]["settings"]) for row in WALKS[walk]}
    same = [row for row, point in wanted.items() if row in results and chosen[row]["settings"] == point]
    return {**{row: results[row] for row in (walk, *same)}, **results_of(regime, f"equal/{walk}")}


def tested(regime: str) -> Results:
    """The rows of a regime's test, with the mix at OBD-SD's settings where that was tested."""
    equal = results_of(regime, "equal/obd-sd")
    return {**results_of(regime), **({EQUAL: equal["mean-mix"]} if "mean-mix" in equal else {})}


def stages_of(regime: str) -> dict[float, str]:
    """Stages of a regime by their share of wrong labels. The share with which the settings were chosen is that of the test."""
    own = REGIMES[regime].common.get("label_noise", 0.0)
    return {**{share: f"noise-{share}" for share in (0.0, *REGIMES[regime].noise)}, own: "test"}


def by_wrong_labels(regime: str) -> dict[float, Results]:
    """Results by the share of wrong labels, for the rows that were trained with more than one share."""
    stages = {share: results_of(regime, stage) for share, stage in stages_of(regime).items()}
    several = {row for row in ROWS if sum(row in results for results in stages.values()) > 1}
    return {share: {row: results[row] for row in results if row in several} for share, results in stages.items()}


def untrained_of(regime: str) -> Results:
    """Heads that were never trained, where they were scored."""
    seeds = by_seed(f"{regime}/untrained")
    return {"*untrained head*": seeds} if seeds else {}


def over_seeds(ours: Seeds, baseline: Seeds) -> Interval:
    """Gain in Recall@1, paired by seed: Student's interval over seeds."""
    return t_interval(np.array([recall(ours[seed]) - recall(baseline[seed]) for seed in ours if seed in baseline]))


def difference_cells(ours: Seeds, baseline: Seeds) -> list[str]:
    """Gain in Recall@1, paired by seed, with its intervals over seeds and over test classes; empty if the rows share no seed."""
    pairs = [(ours[seed]["per_class"], baseline[seed]["per_class"]) for seed in ours if seed in baseline]
    if ours is baseline or not pairs:
        return ["", "", ""]
    gain = over_seeds(ours, baseline)
    return [f"{100 * gain.mean:+.2f}", ends(gain), ends(class_interval(*differences_by_class(*zip(*pairs, strict=True))))]


def gains_of(results: Results, row: str, other: str, score: str = "R@1") -> list[float]:
    """Differences in points, for the seeds that both rows have."""
    ours, baseline = results.get(row, {}), results.get(other, {})
    return [SCORES[score](ours[seed]) - SCORES[score](baseline[seed]) for seed in ours if seed in baseline]


def gain_of(results: Results, row: str, other: str, score: str = "R@1") -> str:
    """The mean difference over the seeds that both rows have, with its interval."""
    gains = gains_of(results, row, other, score)
    if not gains:
        return ""
    interval = t_interval(np.array(gains) / 100)
    return f"{100 * interval.mean:+.2f} ({ends(interval)})"


def relative_gain(ours: Seeds, baseline: Seeds) -> float:
    """The mean difference in Recall@1 as a share of the baseline's, over the seeds that both have."""
    shared = ours.keys() & baseline.keys()
    own, other = ({seed: seeds[seed] for seed in seeds if seed in shared} for seeds in (ours, baseline))
    return mean_score(own) / mean_score(other) - 1


def verdict(results: Results) -> str:
    """What OBD-SD's gain over the plain loss is due to, by the intervals over seeds.

    It is the walk's only if OBD-SD is above every control that was tested, the mix at OBD-SD's settings included."""
    walk, plain = results["obd-sd"], results["ms"]
    gain = over_seeds(walk, plain)
    if not gain.low > 0:
        return "a loss" if gain.high < 0 else "not seen"
    controls = [results[control] for control in GRAPHLESS if control in results]
    if all(over_seeds(walk, control).low > 0 for control in controls):
        return "real, and the walk's"
    if any(over_seeds(control, plain).low > 0 for control in controls):
        return "real, a control's too"
    return "real, not told from a control's"
