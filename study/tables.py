"""Tables and plots of the pages, made from the records alone. The tables of a single regime are in this file."""

from __future__ import annotations

import json
import re

import numpy as np

from obdsd.experiments.reproduction import Reproduction
from obdsd.experiments.reproduction_tables import markdown
from obdsd.experiments.tables import markdown_table
from obdsd.files import replacing
from study import contrasts, held_out
from study.beginnings import BEGINNINGS, DATA
from study.plan import REGIMES, name_of, tried
from study.reading import (
    GEOMETRY,
    SCORES,
    by_seed,
    by_wrong_labels,
    chosen_of,
    difference_cells,
    mean_score,
    of_folds,
    relative_gain,
    results_of,
    times_of,
    untrained_of,
)
from study.records import RESULTS, ROOT, records
from study.trials import TRIALS, name_of_trial
from study.variants import VARIANTS, WEIGHTS, weights_of
from study.walk import OMEGAS

PAGES = tuple(ROOT / name for name in ("README.md", "docs/results.md", "docs/results-tables.md", "docs/reproduce.md"))
FEATURES = "study/out/cub128.npz"


def write_all() -> None:
    """Make all tables and plots of the pages again, from results/."""
    from study.plots import draw_all

    draw_all()
    for page in PAGES:
        text = page.read_text()
        with replacing(page) as file:
            file.write(filled(text).encode())
        print(f"written: {page.relative_to(ROOT)}")


def filled(text: str) -> str:
    """The page with a new table between each `<!-- table NAME -->` and `<!-- end -->`."""
    return re.sub(r"<!-- table (\S+) -->\n.*?<!-- end -->", lambda match: _block(match[1]), text, flags=re.DOTALL)


def _block(name: str) -> str:
    kind, _, of = name.partition(":")
    return f"<!-- table {name} -->\n{TABLES[kind](of)}\n<!-- end -->"


def scores_table(regime: str) -> str:
    """Means over seeds, and the difference to the plain loss, paired by seed."""
    results, times = results_of(regime), times_of(regime)
    lines = [["", "seeds", *SCORES, "R@1 − ms", "95 % over seeds", "95 % over classes", "time"]]
    for name, scores in (results["ms"][0]["reference"] or {}).items():
        cells = [f"{of({'scores': scores}):.1f}" if score != "NMI" else "" for score, of in SCORES.items()]
        lines.append([f"*{name}*", "", *cells, "", "", "", ""])
    for row, seeds in {**untrained_of(regime), **results}.items():
        means = [f"{mean_score(seeds, score):.1f}" for score in SCORES]
        time = "1" if row == "ms" else f"{times[row]:.2f}" if row in times else ""
        lines.append([row, str(len(seeds)), *means, *difference_cells(seeds, results["ms"]), time])
    return markdown_table(lines)


def why_table(regime: str) -> str:
    """The training set's geometry at the end, and readings of the distillation in the second half of the training."""
    lines = [["", *GEOMETRY]]
    for row, seeds in results_of(regime).items():
        means = [np.mean([reading(record) for record in seeds.values()]) for reading in GEOMETRY.values()]
        lines.append([row, *("" if np.isnan(mean) else f"{mean:.3f}" for mean in means)])
    return markdown_table(lines)


def noise_table(regime: str) -> str:
    """Rows that were also trained with wrong labels. The gain is also relative to the plain loss, as in the paper."""
    lines = [["wrong labels", "", "seeds", "R@1", "R@1 − ms", "95 % over seeds", "95 % over classes", "relative"]]
    for share, results in by_wrong_labels(regime).items():
        for row, seeds in results.items():
            gain = "" if row == "ms" else f"{relative_gain(seeds, results['ms']):+.1%}"
            cells = [f"{mean_score(seeds):.1f}", *difference_cells(seeds, results["ms"])]
            lines.append([f"{share:.0%}", row, str(len(seeds)), *cells, gain])
    return markdown_table(lines)


def chosen_table(regime: str) -> str:
    """Each row's settings and its Recall@1 on the held-out classes of the two folds."""
    lines = [["", "R@1, held-out", "settings", "tried"]]
    for row, entry in chosen_of(regime).items():
        settings = name_of(entry["settings"]).replace(",", ", ")
        lines.append([row, f"{100 * entry['validation']:.1f}", settings, str(tried(REGIMES[regime], row))])
    return markdown_table(lines)


def trials_table(name: str) -> str:
    """What two seeds had suggested, beside five seeds with the same settings."""
    lines = [["", "λ", "R@1, two seeds then", "R@1, five seeds", "− ms", "95 % over seeds", "spectral decay"]]
    plain = by_seed(name_of_trial(name, "ms", 0.0))
    for (row, weight), then in TRIALS[name].first.items():
        now = plain if row == "ms" else by_seed(name_of_trial(name, row, weight))
        decay = np.mean([GEOMETRY["spectral decay"](record) for record in now.values()])
        gain, interval, _ = difference_cells(now, plain)
        lines.append([row, f"{weight:g}" if weight else "", f"{then:.1f}", f"{mean_score(now):.1f}", gain, interval, f"{decay:.3f}"])
    return markdown_table(lines)


def walk_table(_: str) -> str:
    """How much of the walk's targets is a flatter teacher, and how much the batch's mean row; and how much of a mean row there is."""
    lines = [["who teaches", "mean row", *(f"{what}, ω = {omega}" for omega in OMEGAS for what in ("(1-ω)D", "+ ωm"))]]
    for who, shares in json.loads((RESULTS / "walk.json").read_text()).items():
        lines.append([who, *(f"{share:.1%}" for share in shares)])
    return markdown_table(lines)


def beginnings_table(_: str) -> str:
    """Recall@1 of the plain loss on held-out classes, by how the head began: mean over seeds and folds."""
    lines = [["the head begins as", *DATA]]
    for name in BEGINNINGS:
        runs = [records(f"beginnings/{data}/{name}").values() for data in DATA]
        lines.append([name, *(f"{np.mean([SCORES['R@1'](record) for record in each]):.1f}" for each in runs)])
    return markdown_table(lines)


def variants_table(head: str) -> str:
    """Recall@1 on held-out classes, mean of two folds, of the variants that have all their runs."""
    runs = records(f"variants/{head}")
    lines = [["", *(f"λ = {weight:g}" for weight in WEIGHTS), "spectral decay"]]
    for name in VARIANTS:
        weights = [of_folds(runs, f"{name}/weight={weight:g}") for weight in weights_of(name)]
        if all(weights):
            recalls = [f"{np.mean([SCORES['R@1'](run) for run in both]):.1f}" for both in weights]
            decays = [f"{np.mean([GEOMETRY['spectral decay'](run) for run in both]):.3f}" for both in weights]
            lines.append([name, *(recalls if len(recalls) > 1 else recalls * len(WEIGHTS)), ", ".join(decays)])
    return markdown_table(lines)


def reproduction_table(name: str) -> str:
    """A table of the paper at the small scale."""
    return markdown(Reproduction(table=name, scale="small", data=FEATURES, seeds=5, out=RESULTS / "reproduction")).rstrip()


def comparison_table(name: str) -> str:
    """The table that `obdsd compare` wrote, without its last column, the times of whole runs."""
    lines = (RESULTS / name / "comparison.md").read_text().split("\n\n")[0].splitlines()
    return "\n".join(line.rpartition(" | ")[0] + " |" for line in lines)


TABLES = {
    "primary": contrasts.primary_table,
    "answer": contrasts.answer_table,
    "graphless": contrasts.graphless_table,
    "headline": contrasts.headline_table,
    "precision": contrasts.precision_table,
    "balanced": contrasts.balanced_table,
    "stopped": contrasts.stopped_table,
    "projection": contrasts.projection_table,
    "robust": contrasts.robust_table,
    "replacement": contrasts.replacement_table,
    "margin": contrasts.margin_table,
    "equal": contrasts.equal_table,
    "alike": held_out.alike_table,
    "carried": held_out.carried_table,
    "agreement": held_out.agreement_table,
    "scores": scores_table,
    "why": why_table,
    "noise": noise_table,
    "chosen": chosen_table,
    "trials": trials_table,
    "walk": walk_table,
    "beginnings": beginnings_table,
    "variants": variants_table,
    "reproduction": reproduction_table,
    "comparison": comparison_table,
}
"""Tables by the name in a page's marker, `NAME` or `NAME:OF`."""
