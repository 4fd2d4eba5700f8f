"""A report's content made up of seeded numbers: right and wrong answers of every kind, pictures, and names that try to be code.

Beside it, how the tests read the page in a browser, and what it should show of this content.
"""

import io
from dataclasses import replace
from functools import cache

import numpy as np
from PIL import Image

from obdsd.experiments.statistics import Interval
from obdsd.report.content import Batch, Content, Cost, Curve, Geometry, Matrix, Neighbours, PairShares, Run
from obdsd.report.headline import Estimate, chart_of

NASTY = "<script>alert(1)</script>"
BIRDS = ("Heron", "Gull", "Finch", "Wren", "Tern", NASTY, "Crow & Rook", "Black-footed Albatross", "Owl", "Snipe\u2028</script>")
BIRDS += ("<b>Kite</b>", "Swift")
LABELS = np.repeat(np.arange(12), 8)  # the class of each item


@cache
def picture(label: int, number: int, crop: bool = False) -> bytes:
    """One colour: another for each class, item, and crop."""
    buffer = io.BytesIO()
    Image.new("RGB", (48, 48), (20 * label, 30 * (number % 8), 200 * crop)).save(buffer, "WEBP")
    return buffer.getvalue()


def nearest(queries: np.ndarray, rows: np.ndarray, allowed: np.ndarray, k: int) -> Neighbours:
    """The k rows of greatest cosine among those allowed."""
    cosines = np.where(allowed, queries @ rows.T, -np.inf)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    return Neighbours(indices=order, cosines=np.take_along_axis(cosines, order, axis=1).astype(np.float32))


def right(run: Run, labels: np.ndarray) -> np.ndarray:
    """Whether the nearest other of each item is of its class."""
    return labels[run.neighbours.indices[:, 0]] == labels


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def made_run(name: str, seed: int, noise: float, local: np.ndarray, images: bool) -> Run:
    """Rows around class centres, the fewer mistakes the smaller the noise; all else follows from them or is drawn by the seed."""
    generator = np.random.default_rng(seed)
    rows = unit(unit(np.random.default_rng(7).standard_normal((12, 6)))[LABELS] + noise * generator.standard_normal((len(LABELS), 6)))
    crops = unit(rows[local] + 0.3 * generator.standard_normal((len(local), 6)))
    same, others = LABELS[:, None] == LABELS, ~np.eye(len(LABELS), dtype=bool)
    neighbours, near = nearest(rows, rows, others, 5), nearest(crops, rows, others[local], 5)
    found = LABELS[neighbours.indices[:, 0]] == LABELS
    cosines = (rows @ rows.T)[:24, :24]
    targets = np.exp(cosines * 8) / np.exp(cosines * 8).sum(axis=1, keepdims=True)
    matrices = {
        ("Teacher's similarities", "similarity"): cosines,
        ("Targets of PSD", "targets"): targets,
        ("Targets of OBD-SD", "refined"): 0.5 * targets + 0.5 * targets @ targets,
        ("Control", "refined"): 0.7 * targets + 0.3 * targets.mean(axis=0),
        ("Student's similarities", "similarity"): cosines * 0.9,
    }
    shares = PairShares(centres=list(np.linspace(-0.9, 0.9, 10)), same=[0.04] * 10, different=[0.06] * 10)
    return Run(
        name=name,
        seed=seed,
        folder=f"runs/{name}",
        map=(rows[:, :2] * 20 + rows[:, 2:4] * 9).astype(np.float32),
        neighbours=neighbours,
        positive=nearest(rows, rows, same & others, 1),
        local=near if images else None,
        local_recall=float((LABELS[near.indices[:, 0]] == LABELS[local]).mean()) if images else None,
        per_class=[float(found[label == LABELS].mean()) for label in range(12)],
        scores={"Recall@1, %": f"{100 * found.mean():.2f}", "MAP@R, %": f"{60 * found.mean():.2f}"},
        geometry=Geometry(spectrum=list(np.exp(-np.arange(32) / 9) / 10), distances=shares, gradient=shares),
        batch=Batch(
            matrices=[
                Matrix(title=title, kind=kind, sentence=f"What {title} shows.", values=values.astype(np.float32))
                for (title, kind), values in matrices.items()
            ],
            classes=[BIRDS[label] for label in LABELS[:24]],
            which="epoch 3, batch 1",
        ),
        cost=Cost(
            seconds=0.1 + 0.02 * seed, ratio=1 + 0.2 * seed, teacher=0.22, targets=0.013 * seed, memory_mib=812.0 if images else None
        ),
        training_seconds=754.0,
        taught=True,
        options={"seed": seed, "loss": "multi-similarity", "targets": "batch-diffusion(omega=0.3)" if seed else None, "epochs": 12},
        versions={"obdsd": "0.1.0", "torch": "2.10"},
    )


def made_content(names=("Multi-similarity", "with OBD-SD"), images: bool = True) -> Content:
    """Runs on the same items; the first is the noisiest."""
    local = np.arange(0, len(LABELS), 5) if images else np.empty(0, np.int64)
    noise = np.linspace(0.4, 0.3, len(names)) if len(names) > 1 else [0.3]
    runs = [made_run(name, seed, noise[seed], local, images) for seed, name in enumerate(names)]
    first, *others = scores = [float(right(run, LABELS).mean()) for run in runs]
    intervals = [None, *(Interval(score - first, score - first - 0.02, score - first + 0.02) for score in others)]
    curves = {
        "Base loss": [[(epoch, 2 * np.exp(-epoch / 5) + 0.1 * share) for epoch in range(1, 13)] for share in scores],
        "Distillation loss": [[(epoch, 0.2 + 0.05 * epoch) for epoch in range(2, 13)] if run.seed else [] for run in runs],
        "Recall@1, held-out classes": [[(epoch, share * epoch / 12) for epoch in range(0, 13, 2)] for share in scores],
        "Density": [[(epoch, 1 - share + 0.02 * epoch) for epoch in range(1, 13)] for share in scores],
        "Spectral decay": [[(1, float("inf")), *((epoch, 0.6 - 0.03 * epoch * share) for epoch in range(2, 13))] for share in scores],
    }
    return Content(
        title="OBD-SD against its baseline on made-up birds",
        chart=chart_of(list(map(Estimate, names, scores, intervals)), {"frozen features": first - 0.04}, "Dots are means over 5 seeds."),
        sentences=[f"{name}: {score:.1%} of the queries." for name, score in zip(names, scores, strict=True)],
        header=["method", "Recall@1", "difference"],
        rows=[[name, f"{score:.2%}", f"{score - first:+.2%}"] for name, score in zip(names, scores, strict=True)],
        caption="Paired over 5 seeds; intervals by Student's t.",
        facts={"Data": "made-up birds", "Resolution": "48 × 48", "Epoch": "the best on held-out training classes"},
        curves=[Curve(title=title, sentence=f"What {title} tells.", lines=lines) for title, lines in curves.items()],
        classes=list(BIRDS),
        labels=LABELS,
        names=[f"{BIRDS[label][:12]}/{place:04}.jpg" for place, label in enumerate(LABELS)],
        pictures=[picture(int(label), place) if images else None for place, label in enumerate(LABELS)],
        shown=np.arange(len(LABELS)),
        asking=np.arange(len(LABELS)),
        local_queries=local,
        local_pictures=[picture(int(LABELS[item]), int(item), crop=True) for item in local],
        chosen_queries=np.array([17, 3]),
        runs=runs,
        commands=["obdsd compare multi-similarity obd-sd --data birds --seeds 5", "obdsd report runs/* --out report.html"],
    )


def untaught(content: Content, *runs: int) -> Content:
    """The same, where some runs, all if none is named, had neither teacher nor distillation."""

    def alone(run: Run) -> Run:
        nothing = Batch(matrices=[], classes=[], which="")
        cost = replace(run.cost, teacher=0.0, targets=0.0)
        return replace(run, taught=False, geometry=replace(run.geometry, gradient=None), batch=nothing, cost=cost)

    chosen = runs or range(len(content.runs))
    curves = [curve for curve in content.curves if runs or curve.title != "Distillation loss"]
    return replace(content, curves=curves, runs=[alone(run) if number in chosen else run for number, run in enumerate(content.runs)])


CONTENT = made_content()
BASE, OURS = CONTENT.runs


def queries(page) -> list[int]:
    """All queries of the gallery as it stands, page after page."""
    found = []
    while True:
        found += page.eval_on_selector_all(".card", "cards => cards.map(card => Number(card.dataset.query))")
        if not page.is_visible("#next") or page.is_disabled("#next"):
            return found
        page.click("#next")


def in_turns(items: np.ndarray) -> list[int]:
    """One of each class, then the next of each."""
    place = {int(item): int((LABELS[items[items <= item]] == LABELS[item]).sum()) for item in items}
    return sorted(place, key=lambda item: (place[item], item))


def expected(name: str) -> list[int]:
    """The queries of each filter, from the content alone."""
    base, ours = right(BASE, LABELS), right(OURS, LABELS)
    gain = np.array(OURS.per_class) - np.array(BASE.per_class)
    best = [label for label in np.argsort(-gain, kind="stable") if gain[label] > 0][:10]
    return {
        "all": in_turns(np.arange(len(LABELS))),
        "wins": in_turns(np.flatnonzero(ours & ~base)),
        "losses": in_turns(np.flatnonzero(base & ~ours)),
        "wrong": in_turns(np.flatnonzero(~base & ~ours)),
        "improved": [int(item) for label in best for item in np.flatnonzero(LABELS == label)],
        "cross": np.argsort(BASE.positive.cosines[:, 0], kind="stable")[:12].tolist(),
        "local": CONTENT.local_queries.tolist(),
        "chosen": CONTENT.chosen_queries.tolist(),
    }[name]
