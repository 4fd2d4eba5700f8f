"""Tables, numbers and plots of the pages, made from the records alone. The tables of a single regime are in this file."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable

import numpy as np

from obdsd.experiments.reproduction import Reproduction
from obdsd.experiments.reproduction_tables import markdown
from obdsd.experiments.tables import markdown_table
from obdsd.files import replacing
from study import advice, arena, calibration, contrasts, held_out, numbers, reading, suspects, teachers
from study.plan import REGIMES, name_of, tried
from study.records import RESULTS, ROOT, records
from study.trials import TRIALS, name_of_trial
from study.variants import BEGINNINGS, BEGUN_ON, VARIANTS, WEIGHTS, weights_of
from study.walk import OMEGAS

DOCS = (
    *("arena", "results", "results-recipes", "results-small-features", "results-search", "results-tables"),
    *("models", "reproduce", "search"),
)
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in DOCS))
FEATURES = "study/out/cub128.npz"


def write_all() -> None:
    """Make all tables, numbers and plots of the pages again, from results/."""
    from study.plots import draw_all

    draw_all()
    for page in PAGES:
        text = page.read_text()
        with replacing(page) as file:
            file.write(filled(text).encode())
        print(f"written: {page.relative_to(ROOT)}")


def filled(text: str) -> str:
    """The page with a new table between each `<!-- table NAME -->` and `<!-- end -->`, and each marked number anew (study/numbers.py)."""
    tables = re.sub(r"<!-- table (\S+) -->\n.*?<!-- end -->", lambda match: _block(match[1]), text, flags=re.DOTALL)
    return numbers.filled(tables)


def _block(name: str) -> str:
    table = made(name)
    return f"<!-- table {name} -->\n{table if isinstance(table, str) else markdown_table([*table])}\n<!-- end -->"


def made(name: str) -> reading.Rows | str:
    """The table `NAME` or `NAME:OF`."""
    kind, _, of = name.partition(":")
    return TABLES[kind](of)


def scores_table(regime: str) -> reading.Rows:
    """Means over seeds, and the difference to the plain loss, paired by seed."""
    results, times = reading.results_of(regime), reading.times_of(regime)
    yield ["", "seeds", *reading.SCORES, "R@1 − ms", "95 % over seeds", "95 % over classes", "time"]
    for name, scores in (results["ms"][0]["reference"] or {}).items():
        cells = [f"{of({'scores': scores}):.1f}" if score != "NMI" else "" for score, of in reading.SCORES.items()]
        yield [f"*{name}*", "", *cells, "", "", "", ""]
    for row, seeds in {**reading.untrained_of(regime), **results}.items():
        means = [f"{reading.mean_score(seeds, score):.1f}" for score in reading.SCORES]
        time = "1" if row == "ms" else f"{times[row]:.2f}" if row in times else ""
        yield [row, str(len(seeds)), *means, *reading.difference_cells(seeds, results["ms"]), time]


def why_table(regime: str) -> reading.Rows:
    """The training set's geometry at the end, and readings of the distillation in the second half of the training."""
    yield ["", *reading.GEOMETRY]
    for row, seeds in reading.results_of(regime).items():
        means = [np.mean([reading(record) for record in seeds.values()]) for reading in reading.GEOMETRY.values()]
        yield [row, *("" if np.isnan(mean) else f"{mean:.3f}" for mean in means)]


def noise_table(regime: str) -> reading.Rows:
    """Rows that were also trained with wrong labels. The gain is also relative to the plain loss, as in the paper."""
    yield ["wrong labels", "", "seeds", "R@1", "R@1 − ms", "95 % over seeds", "95 % over classes", "relative"]
    for share, results in reading.by_wrong_labels(regime).items():
        for row, seeds in results.items():
            gain = "" if row == "ms" else f"{reading.relative_gain(seeds, results['ms']):+.1%}"
            cells = [f"{reading.mean_score(seeds):.1f}", *reading.difference_cells(seeds, results["ms"])]
            yield [f"{share:.0%}", row, str(len(seeds)), *cells, gain]


def chosen_table(regime: str) -> reading.Rows:
    """Each row's settings and its Recall@1 on the held-out classes of the two folds."""
    yield ["", "R@1, held-out", "settings", "tried"]
    for row, entry in reading.chosen_of(regime).items():
        settings = name_of(entry["settings"]).replace(",", ", ")
        yield [row, f"{100 * entry['validation']:.1f}", settings, str(tried(REGIMES[regime], row))]


def trials_table(name: str) -> reading.Rows:
    """What two seeds had suggested, beside five seeds with the same settings."""
    yield ["", "λ", "R@1, two seeds then", "R@1, five seeds", "− ms", "95 % over seeds", "spectral decay"]
    plain = reading.by_seed(name_of_trial(name, "ms", 0.0))
    for row, weight, then in TRIALS[name].first:
        now = plain if row == "ms" else reading.by_seed(name_of_trial(name, row, weight))
        decay = np.mean([reading.GEOMETRY["spectral decay"](record) for record in now.values()])
        gain, interval, _ = reading.difference_cells(now, plain)
        yield [row, f"{weight:g}" if weight else "", f"{then:.1f}", f"{reading.mean_score(now):.1f}", gain, interval, f"{decay:.3f}"]


def walk_table(_: str) -> reading.Rows:
    """How much of the walk's targets is a flatter teacher, and how much the batch's mean row; and how much of a mean row there is."""
    yield ["who teaches", "mean row", *(f"{what}, ω = {omega}" for omega in OMEGAS for what in ("(1-ω)D", "+ ωm"))]
    for who, shares in json.loads((RESULTS / "walk.json").read_text()).items():
        yield [who, *(f"{share:.1%}" for share in shares)]


def reranking_table(_: str) -> reading.Rows:
    """Test scores of each re-ranker with the settings that held-out classes chose."""
    record = json.loads((RESULTS / "reranking.json").read_text())
    yield ["features", "ranked by", "settings", "R@1", "R@2", "R@4", "R@8", "MAP@R"]
    for features, found in record.items():
        for kind, entry in found["test"].items():
            settings = "" if entry["rerank"] == kind else f"`{entry['rerank']}`"
            shown = [f"{entry[name]:.1f}" for name in ("recall@1", "recall@2", "recall@4", "recall@8", "map@r")]
            yield [features, "cosine" if kind == "none" else kind, settings, *shown]


def reach_table(_: str) -> reading.Rows:
    """How much walks within few items share with the exact walk."""
    yield ["a walk visits at most", "of the first 10", "of the first 60", "MAP@R"]
    for name, found in json.loads((RESULTS / "reach.json").read_text()).items():
        shares = [f"{found[k]:.1%}" if k in found else "" for k in ("10", "60")]
        yield [name if name == "exact" else f"the {name} items", *shares, f"{100 * found['map@r']:.1f}"]


def ways_table(_: str) -> reading.Rows:
    """Walks on other graphs, on held-out classes."""
    yield ["", "R@1", "R@8", "MAP@R"]
    for name, found in json.loads((RESULTS / "other-ways.json").read_text()).items():
        yield [name, *(f"{found[score]:.1f}" for score in ("recall@1", "recall@8", "map@r"))]


def beginnings_table(_: str) -> reading.Rows:
    """Recall@1 of the plain loss on held-out classes, by how the head began: mean over seeds and folds."""
    yield ["the head begins as", *BEGUN_ON]
    for name in BEGINNINGS:
        runs = [records(f"beginnings/{data}/{name}").values() for data in BEGUN_ON]
        yield [name, *(f"{np.mean([reading.SCORES['R@1'](record) for record in each]):.1f}" for each in runs)]


def variants_table(head: str) -> reading.Rows:
    """Recall@1 on held-out classes, mean of two folds, of the variants that have all their runs."""
    runs = records(f"variants/{head}")
    yield ["", *(f"λ = {weight:g}" for weight in WEIGHTS), "spectral decay"]
    for name in VARIANTS:
        weights = [reading.of_folds(runs, f"{name}/weight={weight:g}") for weight in weights_of(name)]
        if all(weights):
            recalls = [f"{np.mean([reading.SCORES['R@1'](run) for run in both]):.1f}" for both in weights]
            decays = [f"{np.mean([reading.GEOMETRY['spectral decay'](run) for run in both]):.3f}" for both in weights]
            yield [name, *(recalls if len(recalls) > 1 else recalls * len(WEIGHTS)), ", ".join(decays)]


def reproduction_table(name: str) -> str:
    """A table of the paper at the small scale."""
    return markdown(Reproduction(table=name, scale="small", data=FEATURES, seeds=5, out=RESULTS / "reproduction")).rstrip()


def comparison_table(name: str) -> str:
    """The table that `obdsd compare` wrote, without its last column, the times of whole runs."""
    lines = (RESULTS / name / "comparison.md").read_text().split("\n\n")[0].splitlines()
    return "\n".join(line.rpartition(" | ")[0] + " |" for line in lines)


TABLES: dict[str, Callable[[str], reading.Rows | str]] = {
    name.removesuffix("_table"): table
    for module in (advice, arena, calibration, contrasts, held_out, suspects, teachers, sys.modules[__name__])
    for name, table in vars(module).items()
    if name.endswith("_table")
}
"""`NAME_table` of these modules, by the name in a page's marker, `NAME` or `NAME:OF`."""
