"""Tables and plots of the pages from the records under results/: nothing else goes into them. Those of one regime are made here."""

from __future__ import annotations

import json
import re

import numpy as np

from obdsd.experiments.reproduction import Reproduction
from obdsd.experiments.reproduction_tables import markdown
from obdsd.experiments.tables import markdown_table
from obdsd.files import replacing
from study import contrasts
from study.beginnings import BEGINNINGS, DATA
from study.plan import FOLDS, REGIMES, name_of, tried
from study.reading import GEOMETRY, SCORES, by_wrong_labels, chosen_of, difference_cells, relative_gain, results_of, times_of, untrained_of
from study.records import RESULTS, ROOT, records
from study.trials import TRIALS, name_of_trial
from study.variants import VARIANTS, WEIGHTS
from study.walk import OMEGAS

PAGES = tuple(ROOT / name for name in ("README.md", "docs/results.md", "docs/results-tables.md", "docs/reproduce.md"))
FEATURES = "study/out/cub128.npz"


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
    for share, results in by_wrong_labels(regime).items():
        for row, found in results.items():
            plain = results["ms"]
            mean = np.mean([SCORES["R@1"](record) for record in found.values()])
            gain = "" if row == "ms" else f"{relative_gain(found, plain):+.1%}"
            lines.append([f"{share:.0%}", row, str(len(found)), f"{mean:.1f}", *difference_cells(found, plain), gain])
    return markdown_table(lines)


def chosen_table(regime: str) -> str:
    """Each row's settings and its Recall@1 on the held-out classes of the two folds."""
    lines = [["", "R@1, held-out", "settings", "tried"]]
    for row, entry in chosen_of(regime).items():
        settings = name_of(entry["settings"]).replace(",", ", ")
        lines.append([row, f"{100 * entry['validation']:.1f}", settings, str(tried(REGIMES[regime], row))])
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


def beginnings_table(_: str) -> str:
    """Recall@1 on held-out classes of the plain loss, by how the head began: mean of seeds and folds."""
    lines = [["the head begins as", *DATA]]
    for name in BEGINNINGS:
        found = [records(f"beginnings/{data}/{name}").values() for data in DATA]
        lines.append([name, *(f"{np.mean([SCORES['R@1'](record) for record in runs]):.1f}" for runs in found)])
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
    "primary": contrasts.primary_table,
    "alike": contrasts.alike_table,
    "robust": contrasts.robust_table,
    "carried": contrasts.carried_table,
    "agreement": contrasts.agreement_table,
    "equal": contrasts.equal_table,
    "margin": contrasts.margin_table,
    "replacement": contrasts.replacement_table,
    "answer": contrasts.answer_table,
    "graphless": contrasts.graphless_table,
    "headline": contrasts.headline_table,
    "scores": scores_table,
    "why": why_table,
    "noise": noise_table,
    "chosen": chosen_table,
    "walk": walk_table,
    "trials": trials_table,
    "variants": variants_table,
    "beginnings": beginnings_table,
    "precision": contrasts.precision_table,
    "stopped": contrasts.stopped_table,
    "balanced": contrasts.balanced_table,
    "projection": contrasts.projection_table,
    "reproduction": reproduction_table,
    "comparison": comparison_table,
}
