"""Tables and plots of docs/results.md and docs/reproduce.md from the records under results/: nothing else goes into them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from obdsd.experiments.reproduction import Reproduction
from obdsd.experiments.reproduction_tables import markdown
from obdsd.experiments.statistics import Interval, class_interval, t_interval
from obdsd.experiments.tables import markdown_table
from obdsd.files import replacing
from study.plan import FOLDS, NOISE, NOISE_ROWS, REGIMES, ROWS, beginning, name_of, tried
from study.records import RESULTS, ROOT, records
from study.trials import TRIALS, name_of_trial
from study.variants import VARIANTS, WEIGHTS

PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md", ROOT / "docs" / "reproduce.md")
FEATURES = "study/out/cub128.npz"
Record = Mapping[str, Any]
Results = dict[str, dict[int, Record]]  # row → seed → record

SCORES: dict[str, Callable[[Record], float]] = {
    **{f"R@{k}": (lambda record, k=k: 100 * record["scores"]["recall"][str(k)]) for k in (1, 2, 4, 8)},
    "MAP@R": lambda record: 100 * record["scores"]["map_at_r"],
    "NMI": lambda record: 100 * record["scores"]["nmi"],
}
HEADLINES = {
    "ms": "Multi-Similarity",
    "psd": "+ PSD",
    "balanced": "+ PSD, balanced (ours: nobody is near to everybody)",
    "obd-sd": "+ OBD-SD",
    "mean-mix": "+ MeanMix (control: no graph)",
    "flat": "+ flatter teacher (control: PSD, its cosines × 0.7)",
    "anchor": "+ anchor (ours: the untrained features teach)",
}
HEADLINE_REGIMES = ("cub-linear-free", "cub-projected-free", "letters-linear-free", "letters-projected-free", "cub-two-layer-long")
EQUAL = "mean-mix at the settings of obd-sd"
GRAPHLESS = ("mean-mix", EQUAL, "uniform-mix", "flat")
"""Controls: targets like OBD-SD's that know no graph."""
TITLES = {
    "cub-linear-free": "linear head, all chosen",
    "cub-two-layer-free": "two-layer head, all chosen",
    "cub-projected-free": "projected head, all chosen",
    "letters-linear-free": "letters' features, linear head, all chosen",
    "letters-projected-free": "letters' features, projected head, all chosen",
    "cub-linear-long": "linear head, 150 epochs",
    "cub-two-layer-long": "two-layer head, 150 epochs",
    "glyphs-noise": "letters from scratch",
}
GEOMETRY: dict[str, Callable[[Record], float]] = {
    "inside classes": lambda record: record["train"]["intra"],
    "between classes": lambda record: record["train"]["inter"],
    "density": lambda record: record["train"]["density"],
    "spectral decay": lambda record: record["train"]["spectral_decay"],
    "targets' entropy": lambda record: _reading(record, "entropy"),
    "on the same class": lambda record: _reading(record, "same_class"),
    "gradient share": lambda record: _reading(record, "gradient_share"),
}


def write_all() -> None:
    """Put every table into its place on its page, between `<!-- table NAME -->` and `<!-- end -->`; draw the plots."""
    from study.plots import draw_all

    draw_all()
    for page in PAGES:
        text = page.read_text()
        with replacing(page) as file:
            file.write(filled(text).encode())
        print(f"written: {page.relative_to(ROOT)}")


def filled(text: str) -> str:
    """The page with its tables made anew."""
    return re.sub(r"<!-- table (\S+) -->\n.*?<!-- end -->", lambda found: _block(found[1]), text, flags=re.DOTALL)


def _block(name: str) -> str:
    kind, _, regime = name.partition(":")
    return f"<!-- table {name} -->\n{TABLES[kind](regime)}\n<!-- end -->"


def results_of(regime: str, stage: str = "test") -> Results:
    found: Results = {}
    for name, record in records(f"{regime}/{stage}").items():
        row, seed = name.split("/seed-")
        found.setdefault(row, {})[int(seed)] = record
    return {row: dict(sorted(found[row].items())) for row in ROWS if row in found}


def answer_table(_: str) -> str:
    """Regime by regime: is OBD-SD above the plain loss, and above the mix with the batch's mean row, which knows no graph?"""
    mixes = ["obd-sd − mean-mix", "− mean-mix at OBD-SD's settings"]
    lines = [["", "wrong labels", "seeds", "ms", "psd − ms", "obd-sd − ms", *mixes, "the gain is"]]
    for regime, title in TITLES.items():
        for share, stage in stages_of(regime).items():
            results = tested(regime) if stage == "test" else results_of(regime, stage)
            if results.keys() >= {"ms", "obd-sd", "mean-mix"}:
                plain = f"{np.mean([SCORES['R@1'](record) for record in results['ms'].values()]):.1f}"
                pairs = [_gain(results, *pair) for pair in (("psd", "ms"), ("obd-sd", "ms"), ("obd-sd", "mean-mix"), ("obd-sd", EQUAL))]
                seeds = str(len(results["ms"].keys() & results["obd-sd"].keys()))
                lines.append([title, f"{share:.0%}", seeds, plain, *pairs, verdict(results)])
    return markdown_table(lines)


def graphless_table(_: str) -> str:
    """OBD-SD beside every control that knows no graph, in the regimes that have all of them."""
    lines = [["obd-sd −", *GRAPHLESS]]
    for regime, title in TITLES.items():
        results = tested(regime)
        if results.keys() >= {*GRAPHLESS} - {EQUAL}:
            lines.append([title, *(_gain(results, "obd-sd", control) for control in GRAPHLESS)])
    return markdown_table(lines)


def tested(regime: str) -> Results:
    """The rows of a regime's test, with the mix at OBD-SD's settings where that was tested."""
    equal = results_of(regime, "equal")
    return {**results_of(regime), **({EQUAL: equal["mean-mix"]} if equal else {})}


def stages_of(regime: str) -> dict[float, str]:
    """Where a regime's results lie, by the share of wrong labels; what it was chosen with is its test."""
    own = REGIMES[regime].common.get("label_noise", 0.0)
    return {**{share: f"noise-{share}" for share in (0.0, *NOISE)}, own: "test"}


def headline_table(_: str) -> str:
    """The README's: the rows that the answer is about, regime by regime."""
    regimes = {TITLES[regime]: results_of(regime) for regime in HEADLINE_REGIMES}
    lines = [["Recall@1", *regimes]]
    for row, name in HEADLINES.items():
        cells = []
        for results in regimes.values():
            mean = np.mean([SCORES["R@1"](record) for record in results.get(row, {}).values()] or [np.nan])
            cells.append("" if np.isnan(mean) else f"{mean:.1f}" if row == "ms" else f"{mean:.1f}, {_gain(results, row, 'ms')}")
        lines.append([name, *cells])
    return markdown_table(lines)


def precision_table(_: str) -> str:
    """Regime by regime, what the first table says of Recall@1 said of MAP@R, and OBD-SD beside PSD."""
    lines = [["MAP@R", "ms", "psd − ms", "obd-sd − ms", "obd-sd − mean-mix", "obd-sd − psd"]]
    for regime, title in TITLES.items():
        results = results_of(regime)
        if results.keys() >= {"ms", "psd", "obd-sd", "mean-mix"}:
            plain = f"{np.mean([SCORES['MAP@R'](record) for record in results['ms'].values()]):.1f}"
            pairs = (("psd", "ms"), ("obd-sd", "ms"), ("obd-sd", "mean-mix"), ("obd-sd", "psd"))
            lines.append([title, plain, *(_gain(results, *pair, "MAP@R") for pair in pairs)])
    return markdown_table(lines)


def stopped_table(_: str) -> str:
    """Rows of long training beside the plain loss with learning rate and epochs chosen."""
    rows = ("ms", "psd", "obd-sd", "mean-mix", "anchor")
    lines = [["", "ms, epochs chosen", *rows]]
    for regime in _long_regimes():
        stopped = results_of(regime.replace("-long", "-free"))["ms"]
        results = {**results_of(regime), "stopped": stopped}
        mean = f"{np.mean([SCORES['R@1'](record) for record in stopped.values()]):.1f}"
        lines.append([TITLES[regime], mean, *(_gain(results, row, "stopped") for row in rows)])
    return markdown_table(lines)


def projection_table(_: str) -> str:
    """A head that begins as the projection beside one that begins at random, each row with its own settings, paired by seed."""
    lines = [["projected − random", "", "ms", "psd", "obd-sd", "mean-mix", "anchor"]]
    for data in ("cub", "letters"):
        random, projected = (results_of(f"{data}-{head}-free") for head in ("linear", "projected"))
        for score in ("R@1", "MAP@R"):
            pairs = ({"random": random[row], "projected": projected[row]} for row in lines[0][2:])
            lines.append([data, score, *(_gain(pair, "projected", "random", score) for pair in pairs)])
    return markdown_table(lines)


def _long_regimes() -> list[str]:
    return [regime for regime in TITLES if regime.endswith("-long") and results_of(regime)]


def _gain(results: Results, row: str, other: str, score: str = "R@1") -> str:
    """The mean difference over the seeds that both have, with its interval."""
    found, baseline = results.get(row, {}), results.get(other, {})
    gains = [SCORES[score](found[seed]) - SCORES[score](baseline[seed]) for seed in found if seed in baseline]
    if not gains:
        return ""
    over_seeds = t_interval(np.array(gains) / 100)
    return f"{100 * over_seeds.mean:+.2f} ({_ends(over_seeds)})"


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


def scores_table(regime: str) -> str:
    """Means over seeds; the difference to the plain loss is paired by seed."""
    results, times = results_of(regime), _times(regime)
    head = ["", "seeds", *SCORES, "R@1 − ms", "95 % over seeds", "95 % over classes", "time"]
    lines = [head]
    reference = results["ms"][0]["reference"] or {}
    for name, scores in reference.items():
        recalls = [f"{100 * scores['recall'][str(k)]:.1f}" for k in (1, 2, 4, 8)]
        lines.append([f"*{name}*", "", *recalls, f"{100 * scores['map_at_r']:.1f}", "", "", "", "", ""])
    for row, found in {**_untrained(regime), **results}.items():
        means = [f"{np.mean([of(record) for record in found.values()]):.1f}" for of in SCORES.values()]
        time = f"{times[row]:.2f}" if row in times else ""
        lines.append([row, str(len(found)), *means, *_difference(found, results["ms"]), "1" if row == "ms" else time])
    return markdown_table(lines)


def _untrained(regime: str) -> Results:
    """Heads as they were drawn, where they were scored."""
    found = {int(name.removeprefix("seed-")): record for name, record in records(f"{regime}/untrained").items()}
    return {"*untrained head*": found} if found else {}


def _times(regime: str) -> dict[str, float]:
    """What a step of each row costs beside one of the plain loss, where that was measured."""
    file = RESULTS / regime / "times.json"
    return json.loads(file.read_text()) if file.exists() else {}


def _difference(found: Mapping[int, Record], baseline: Mapping[int, Record]) -> list[str]:
    if found is baseline or not found.keys() & baseline.keys():
        return ["", "", ""]
    over_seeds, over_classes = differences(found, baseline)
    return [f"{100 * over_seeds.mean:+.2f}", _ends(over_seeds), _ends(over_classes)]


def differences(found: Mapping[int, Record], baseline: Mapping[int, Record]) -> tuple[Interval, Interval]:
    """Of R@1, paired by seed: a t interval over seeds, a bootstrap over test classes."""
    seeds = [seed for seed in found if seed in baseline]

    def classes(record: Record) -> np.ndarray:
        return np.array(record["per_class"]["recall"]["1"])

    gains = np.array([found[seed]["scores"]["recall"]["1"] - baseline[seed]["scores"]["recall"]["1"] for seed in seeds])
    by_class = np.mean([classes(found[seed]) - classes(baseline[seed]) for seed in seeds], axis=0)
    return t_interval(gains), class_interval(by_class, np.array(found[seeds[0]]["per_class"]["queries"]))


def why_table(regime: str) -> str:
    """The training set's geometry at the end, and what the distillation was in the second half of the training."""
    lines = [["", *GEOMETRY]]
    for row, found in results_of(regime).items():
        means = [np.mean([of(record) for record in found.values()]) for of in GEOMETRY.values()]
        lines.append([row, *("" if np.isnan(mean) else f"{mean:.3f}" for mean in means)])
    return markdown_table(lines)


def _reading(record: Record, name: str) -> float:
    """Mean over the second half of the curve; NaN without a teacher."""
    curve = record["curve"][len(record["curve"]) // 2 :]
    values = [point["distillation"][name] for point in curve if "distillation" in point]
    return float(np.mean(values)) if values else float("nan")


def noise_table(regime: str) -> str:
    """The rows that were trained with wrong labels too; the gain also relative to the plain loss, as in the paper."""
    lines = [["wrong labels", "", "seeds", "R@1", "R@1 − ms", "95 % over seeds", "95 % over classes", "relative"]]
    for share, stage in stages_of(regime).items():
        results = results_of(regime, stage)
        for row in (row for row in NOISE_ROWS if row in results):
            found, plain = results[row], results["ms"]
            mean = np.mean([SCORES["R@1"](record) for record in found.values()])
            gain = "" if row == "ms" else f"{differences(found, plain)[0].mean / _plain(found, plain):+.1%}"
            lines.append([f"{share:.0%}", row, str(len(found)), f"{mean:.1f}", *_difference(found, plain), gain])
    return markdown_table(lines)


def _plain(found: Mapping[int, Record], plain: Mapping[int, Record]) -> float:
    """The plain loss's Recall@1 over the seeds that both have."""
    return float(np.mean([plain[seed]["scores"]["recall"]["1"] for seed in found if seed in plain]))


def chosen_table(regime: str) -> str:
    """Each row's settings and its Recall@1 on the held-out classes of the two folds."""
    chosen = json.loads((RESULTS / regime / "chosen.json").read_text())
    lines = [["", "R@1, held-out", "settings", "tried"]]
    for row, entry in chosen.items():
        settings = name_of(entry["settings"]).replace(",", ", ")
        lines.append([row, f"{100 * entry['validation']:.1f}", settings, str(tried(REGIMES[regime], row))])
    return markdown_table(lines)


def beginnings_table(_: str) -> str:
    """Where the search of the long regimes begins, the paper's λ and ω: all rows alike, on held-out classes."""
    rows = ("ms", "psd", "obd-sd", "obd-sd-softmax", "mean-mix")
    lines = [["Recall@1, MAP@R", *rows]]
    for regime in _long_regimes():
        found = records(f"{regime}/search")
        cells = []
        for row in rows:
            name = f"{row}/{name_of(beginning(REGIMES[regime], row))}"
            both = [found[f"{name}/fold-{fold}"] for fold in range(len(FOLDS))]
            cells.append(", ".join(f"{np.mean([SCORES[score](record) for record in both]):.1f}" for score in ("R@1", "MAP@R")))
        lines.append([TITLES[regime], *cells])
    return markdown_table(lines)


def controls_table(regime: str) -> str:
    """Recall@1 on held-out classes at the settings of anchor+walk, mean over folds and seeds."""
    lines = [["", "runs", "R@1, held-out", "MAP@R"]]
    for row in ("anchor", "anchor+mean-mix", "anchor+walk"):
        found = records(f"{regime}/controls/{row}").values()
        lines.append([row, str(len(found)), *(f"{np.mean([SCORES[name](record) for record in found]):.1f}" for name in ("R@1", "MAP@R"))])
    return markdown_table(lines)


def trials_table(name: str) -> str:
    """What two seeds had suggested beside what five say of the same settings."""
    lines = [["", "λ", "R@1, two seeds then", "R@1, five seeds", "− ms", "95 % over seeds", "spectral decay"]]
    found = {
        (row, weight): {int(seed.removeprefix("seed-")): record for seed, record in records(name_of_trial(name, row, weight)).items()}
        for row, weight in TRIALS[name].first
    }
    for (row, weight), then in TRIALS[name].first.items():
        now = found[row, weight]
        recall, decay = (np.mean([of(record) for record in now.values()]) for of in (SCORES["R@1"], GEOMETRY["spectral decay"]))
        gain = _difference(now, found["ms", 0.0])[:2]
        lines.append([row, f"{weight:g}" if weight else "", f"{then:.1f}", f"{recall:.1f}", *gain, f"{decay:.3f}"])
    return markdown_table(lines)


def walk_table(_: str) -> str:
    """What of the walk's targets is no more than a flatter teacher, and with the batch's mean row."""
    found = json.loads((RESULTS / "walk.json").read_text())
    lines = [["who teaches", *(f"{what}, ω = {omega}" for omega in found["features"] for what in ("(1-ω)D", "+ ωm"))]]
    lines += [[who, *(f"{share:.1%}" for pair in shares.values() for share in pair)] for who, shares in found.items()]
    return markdown_table(lines)


def variants_table(head: str) -> str:
    """Recall@1 on held-out classes, mean of two folds."""
    found = records(f"variants/{head}")
    lines = [["", *(f"λ = {weight:g}" for weight in WEIGHTS), "spectral decay"]]
    for name, variant in VARIANTS.items():
        weights = WEIGHTS if variant.start != "ms" else (0.0,)
        cells, decay = [], []
        for weight in weights:
            both = [found.get(f"{name}/weight={weight:g}/fold-{fold}") for fold in range(len(FOLDS))]
            if None in both:
                break
            cells.append(f"{np.mean([100 * record['scores']['recall']['1'] for record in both]):.1f}")
            decay.append(f"{np.mean([record['train']['spectral_decay'] for record in both]):.3f}")
        else:
            lines.append([name, *(cells * len(WEIGHTS) if len(cells) == 1 else cells), ", ".join(decay)])
    return markdown_table(lines)


def _ends(interval: Interval) -> str:
    return "" if np.isnan(interval.low) else f"{100 * interval.low:+.2f} to {100 * interval.high:+.2f}"


def reproduction_table(name: str) -> str:
    """A table of the paper at the small scale."""
    return markdown(Reproduction(table=name, scale="small", data=FEATURES, seeds=5, out=RESULTS / "reproduction")).rstrip()


def comparison_table(name: str) -> str:
    """What `obdsd compare` wrote; its times are those of whole runs and left out."""
    lines = (RESULTS / name / "comparison.md").read_text().split("\n\n")[0].splitlines()
    return "\n".join(line.rpartition(" | ")[0] + " |" for line in lines)


TABLES = {
    "answer": answer_table,
    "graphless": graphless_table,
    "headline": headline_table,
    "scores": scores_table,
    "why": why_table,
    "noise": noise_table,
    "chosen": chosen_table,
    "walk": walk_table,
    "trials": trials_table,
    "variants": variants_table,
    "controls": controls_table,
    "beginnings": beginnings_table,
    "precision": precision_table,
    "stopped": stopped_table,
    "projection": projection_table,
    "reproduction": reproduction_table,
    "comparison": comparison_table,
}
