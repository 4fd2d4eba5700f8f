"""Tables and plots of docs/results.md and docs/reproduce.md from the records under results/: nothing else goes into them."""

from __future__ import annotations

import json
import re

import numpy as np

from obdsd.experiments.reproduction import Reproduction
from obdsd.experiments.reproduction_tables import markdown
from obdsd.experiments.tables import markdown_table
from obdsd.files import replacing
from study.plan import FOLDS, NOISE_ROWS, REGIMES, beginning, name_of, tried
from study.reading import (
    EQUAL,
    GEOMETRY,
    GRAPHLESS,
    SCORES,
    difference_cells,
    differences,
    gain_of,
    plain_recall,
    results_of,
    stages_of,
    tested,
    times_of,
    untrained_of,
    verdict,
)
from study.records import RESULTS, ROOT, records
from study.trials import TRIALS, name_of_trial
from study.variants import VARIANTS, WEIGHTS
from study.walk import OMEGAS

PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md", ROOT / "docs" / "reproduce.md")
FEATURES = "study/out/cub128.npz"
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


def answer_table(_: str) -> str:
    """Regime by regime: is OBD-SD above the plain loss, and above the mix with the batch's mean row, which knows no graph?"""
    mixes = ["obd-sd − mean-mix", "− mean-mix at OBD-SD's settings"]
    lines = [["", "wrong labels", "seeds", "ms", "psd − ms", "obd-sd − ms", *mixes, "the gain is"]]
    for regime, title in TITLES.items():
        for share, stage in stages_of(regime).items():
            results = tested(regime) if stage == "test" else results_of(regime, stage)
            if results.keys() >= {"ms", "obd-sd", "mean-mix"}:
                plain = f"{np.mean([SCORES['R@1'](record) for record in results['ms'].values()]):.1f}"
                pairs = [gain_of(results, *pair) for pair in (("psd", "ms"), ("obd-sd", "ms"), ("obd-sd", "mean-mix"), ("obd-sd", EQUAL))]
                seeds = str(len(results["ms"].keys() & results["obd-sd"].keys()))
                lines.append([title, f"{share:.0%}", seeds, plain, *pairs, verdict(results)])
    return markdown_table(lines)


def graphless_table(_: str) -> str:
    """OBD-SD beside every control that knows no graph, in the regimes that have all of them."""
    lines = [["obd-sd −", *GRAPHLESS]]
    for regime, title in TITLES.items():
        results = tested(regime)
        if results.keys() >= {*GRAPHLESS} - {EQUAL}:
            lines.append([title, *(gain_of(results, "obd-sd", control) for control in GRAPHLESS)])
    return markdown_table(lines)


def headline_table(_: str) -> str:
    """The README's: the rows that the answer is about, regime by regime."""
    regimes = {TITLES[regime]: results_of(regime) for regime in HEADLINE_REGIMES}
    lines = [["Recall@1", *regimes]]
    for row, name in HEADLINES.items():
        cells = []
        for results in regimes.values():
            mean = np.mean([SCORES["R@1"](record) for record in results.get(row, {}).values()] or [np.nan])
            cells.append("" if np.isnan(mean) else f"{mean:.1f}" if row == "ms" else f"{mean:.1f}, {gain_of(results, row, 'ms')}")
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
            lines.append([title, plain, *(gain_of(results, *pair, "MAP@R") for pair in pairs)])
    return markdown_table(lines)


def balanced_table(_: str) -> str:
    """PSD with balanced targets beside the plain loss, PSD and OBD-SD, wherever it was tested."""
    lines = [["", "", "balanced", "− ms", "− psd", "− obd-sd"]]
    for regime, title in TITLES.items():
        results = results_of(regime)
        for score in ("R@1", "MAP@R") if "balanced" in results else ():
            mean = f"{np.mean([SCORES[score](record) for record in results['balanced'].values()]):.1f}"
            lines.append([title, score, mean, *(gain_of(results, "balanced", other, score) for other in ("ms", "psd", "obd-sd"))])
    return markdown_table(lines)


def stopped_table(_: str) -> str:
    """Rows of long training beside the plain loss with learning rate and epochs chosen."""
    rows = ("ms", "psd", "obd-sd", "mean-mix", "anchor")
    lines = [["", "ms, epochs chosen", *rows]]
    for regime in _long_regimes():
        stopped = results_of(regime.replace("-long", "-free"))["ms"]
        results = {**results_of(regime), "stopped": stopped}
        mean = f"{np.mean([SCORES['R@1'](record) for record in stopped.values()]):.1f}"
        lines.append([TITLES[regime], mean, *(gain_of(results, row, "stopped") for row in rows)])
    return markdown_table(lines)


def projection_table(_: str) -> str:
    """A head that begins as the projection beside one that begins at random, each row with its own settings, paired by seed."""
    lines = [["projected − random", "", "ms", "psd", "obd-sd", "mean-mix", "anchor"]]
    for data in ("cub", "letters"):
        random, projected = (results_of(f"{data}-{head}-free") for head in ("linear", "projected"))
        for score in ("R@1", "MAP@R"):
            pairs = ({"random": random[row], "projected": projected[row]} for row in lines[0][2:])
            lines.append([data, score, *(gain_of(pair, "projected", "random", score) for pair in pairs)])
    return markdown_table(lines)


def _long_regimes() -> list[str]:
    return [regime for regime in TITLES if regime.endswith("-long") and results_of(regime)]


def scores_table(regime: str) -> str:
    """Means over seeds; the difference to the plain loss is paired by seed."""
    results, times = results_of(regime), times_of(regime)
    head = ["", "seeds", *SCORES, "R@1 − ms", "95 % over seeds", "95 % over classes", "time"]
    lines = [head]
    reference = results["ms"][0]["reference"] or {}
    for name, scores in reference.items():
        recalls = [f"{100 * scores['recall'][str(k)]:.1f}" for k in (1, 2, 4, 8)]
        lines.append([f"*{name}*", "", *recalls, f"{100 * scores['map_at_r']:.1f}", "", "", "", "", ""])
    for row, found in {**untrained_of(regime), **results}.items():
        means = [f"{np.mean([of(record) for record in found.values()]):.1f}" for of in SCORES.values()]
        time = f"{times[row]:.2f}" if row in times else ""
        lines.append([row, str(len(found)), *means, *difference_cells(found, results["ms"]), "1" if row == "ms" else time])
    return markdown_table(lines)


def why_table(regime: str) -> str:
    """The training set's geometry at the end, and what the distillation was in the second half of the training."""
    lines = [["", *GEOMETRY]]
    for row, found in results_of(regime).items():
        means = [np.mean([of(record) for record in found.values()]) for of in GEOMETRY.values()]
        lines.append([row, *("" if np.isnan(mean) else f"{mean:.3f}" for mean in means)])
    return markdown_table(lines)


def noise_table(regime: str) -> str:
    """The rows that were trained with wrong labels too; the gain also relative to the plain loss, as in the paper."""
    lines = [["wrong labels", "", "seeds", "R@1", "R@1 − ms", "95 % over seeds", "95 % over classes", "relative"]]
    for share, stage in stages_of(regime).items():
        results = results_of(regime, stage)
        for row in (row for row in NOISE_ROWS if row in results):
            found, plain = results[row], results["ms"]
            mean = np.mean([SCORES["R@1"](record) for record in found.values()])
            gain = "" if row == "ms" else f"{differences(found, plain)[0].mean / plain_recall(found, plain):+.1%}"
            lines.append([f"{share:.0%}", row, str(len(found)), f"{mean:.1f}", *difference_cells(found, plain), gain])
    return markdown_table(lines)


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
        gain = difference_cells(now, found["ms", 0.0])[:2]
        lines.append([row, f"{weight:g}" if weight else "", f"{then:.1f}", f"{recall:.1f}", *gain, f"{decay:.3f}"])
    return markdown_table(lines)


def walk_table(_: str) -> str:
    """What of the walk's targets is no more than a flatter teacher, and with the batch's mean row; and how much of a mean row there is."""
    found = json.loads((RESULTS / "walk.json").read_text())
    lines = [["who teaches", "mean row", *(f"{what}, ω = {omega}" for omega in OMEGAS for what in ("(1-ω)D", "+ ωm"))]]
    lines += [[who, *(f"{share:.1%}" for share in shares)] for who, shares in found.items()]
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
    "balanced": balanced_table,
    "projection": projection_table,
    "reproduction": reproduction_table,
    "comparison": comparison_table,
}
