"""Numbers from the records under results/: means, paired differences with their intervals, and which gain is whose."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from obdsd.experiments.statistics import Interval, class_interval, t_interval
from study.plan import NOISE, REGIMES, ROWS, WALKS, control_of
from study.records import RESULTS, records

Record = Mapping[str, Any]
Results = dict[str, dict[int, Record]]  # row → seed → record

SCORES: dict[str, Callable[[Record], float]] = {
    **{f"R@{k}": (lambda record, k=k: 100 * record["scores"]["recall"][str(k)]) for k in (1, 2, 4, 8)},
    "MAP@R": lambda record: 100 * record["scores"]["map_at_r"],
    "NMI": lambda record: 100 * record["scores"]["nmi"],
}
GEOMETRY: dict[str, Callable[[Record], float]] = {
    "inside classes": lambda record: record["train"]["intra"],
    "between classes": lambda record: record["train"]["inter"],
    "density": lambda record: record["train"]["density"],
    "spectral decay": lambda record: record["train"]["spectral_decay"],
    "targets' entropy": lambda record: reading_of(record, "entropy"),
    "on the same class": lambda record: reading_of(record, "same_class"),
    "gradient share": lambda record: reading_of(record, "gradient_share"),
}
EQUAL = "mean-mix at the settings of obd-sd"
GRAPHLESS = ("mean-mix", EQUAL, "uniform-mix", "flat")
"""Controls: targets like OBD-SD's that know no graph."""


def results_of(regime: str, stage: str = "test") -> Results:
    found: Results = {}
    for name, record in records(f"{regime}/{stage}").items():
        row, seed = name.split("/seed-")
        found.setdefault(row, {})[int(seed)] = record
    return {row: dict(sorted(found[row].items())) for row in ROWS if row in found}


def chosen_of(regime: str) -> dict[str, Any]:
    """What held-out classes chose for each row, and what they said of it."""
    return json.loads((RESULTS / regime / "chosen.json").read_text())


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
    """Where a regime's results lie, by the share of wrong labels; what it was chosen with is its test."""
    own = REGIMES[regime].common.get("label_noise", 0.0)
    return {**{share: f"noise-{share}" for share in (0.0, *NOISE)}, own: "test"}


def by_wrong_labels(regime: str) -> dict[float, Results]:
    """Results by the share of wrong labels, of the rows that were trained with more than one."""
    stages = {share: results_of(regime, stage) for share, stage in stages_of(regime).items()}
    several = {row for row in ROWS if sum(row in results for results in stages.values()) > 1}
    return {share: {row: results[row] for row in results if row in several} for share, results in stages.items()}


def untrained_of(regime: str) -> Results:
    """Heads as they were drawn, where they were scored."""
    found = {int(name.removeprefix("seed-")): record for name, record in records(f"{regime}/untrained").items()}
    return {"*untrained head*": found} if found else {}


def times_of(regime: str) -> dict[str, float]:
    """What a step of each row costs beside one of the plain loss, where that was measured."""
    file = RESULTS / regime / "times.json"
    return json.loads(file.read_text()) if file.exists() else {}


def differences(found: Mapping[int, Record], baseline: Mapping[int, Record]) -> tuple[Interval, Interval]:
    """Of R@1, paired by seed: a t interval over seeds, a bootstrap over test classes."""
    seeds = [seed for seed in found if seed in baseline]

    def classes(record: Record) -> np.ndarray:
        return np.array(record["per_class"]["recall"]["1"])

    gains = np.array([found[seed]["scores"]["recall"]["1"] - baseline[seed]["scores"]["recall"]["1"] for seed in seeds])
    by_class = np.mean([classes(found[seed]) - classes(baseline[seed]) for seed in seeds], axis=0)
    return t_interval(gains), class_interval(by_class, np.array(found[seeds[0]]["per_class"]["queries"]))


def difference_cells(found: Mapping[int, Record], baseline: Mapping[int, Record]) -> list[str]:
    if found is baseline or not found.keys() & baseline.keys():
        return ["", "", ""]
    over_seeds, over_classes = differences(found, baseline)
    return [f"{100 * over_seeds.mean:+.2f}", ends_of(over_seeds), ends_of(over_classes)]


def gains_of(results: Results, row: str, other: str, score: str = "R@1") -> list[float]:
    """Differences in points, by the seeds that both have."""
    found, baseline = results.get(row, {}), results.get(other, {})
    return [SCORES[score](found[seed]) - SCORES[score](baseline[seed]) for seed in found if seed in baseline]


def gain_of(results: Results, row: str, other: str, score: str = "R@1") -> str:
    """The mean difference over the seeds that both have, with its interval."""
    gains = gains_of(results, row, other, score)
    if not gains:
        return ""
    over_seeds = t_interval(np.array(gains) / 100)
    return f"{100 * over_seeds.mean:+.2f} ({ends_of(over_seeds)})"


def relative_gain(found: Mapping[int, Record], plain: Mapping[int, Record]) -> float:
    """The mean difference in Recall@1 as a share of the plain loss's, over the seeds that both have."""
    seeds = [seed for seed in found if seed in plain]
    of, beside = (np.mean([SCORES["R@1"](results[seed]) for seed in seeds]) for results in (found, plain))
    return float(of / beside - 1)


def ends_of(interval: Interval) -> str:
    return "" if np.isnan(interval.low) else f"{100 * interval.low:+.2f} to {100 * interval.high:+.2f}"


def verdict(results: Results) -> str:
    """By the intervals over seeds; the walk's only if OBD-SD is above every control that was tested, the mix also at OBD-SD's settings."""
    gain = differences(results["obd-sd"], results["ms"])[0]
    if not gain.low > 0:
        return "a loss" if gain.high < 0 else "not seen"
    controls = [results[control] for control in GRAPHLESS if control in results]
    if all(differences(results["obd-sd"], control)[0].low > 0 for control in controls):
        return "real, and the walk's"
    too = any(differences(control, results["ms"])[0].low > 0 for control in controls)
    return "real, a control's too" if too else "real, not told from a control's"


def reading_of(record: Record, name: str) -> float:
    """Mean over the second half of the curve; NaN without a teacher."""
    curve = record["curve"][len(record["curve"]) // 2 :]
    values = [point["distillation"][name] for point in curve if "distillation" in point]
    return float(np.mean(values)) if values else float("nan")
