"""A report's content made up of seeded numbers: right and wrong answers of every kind, drawn pictures, and names that try to be code."""

import io
from functools import cache

import numpy as np
from PIL import Image, ImageDraw

from obdsd.experiments.statistics import Interval
from obdsd.report.content import Batch, Content, Cost, Curve, Geometry, Matrix, Neighbours, PairShares, Run
from obdsd.report.headline import Estimate, chart_of

NASTY = "<script>alert(1)</script>"
BIRDS = ("Heron", "Gull", "Finch", "Wren", "Tern", NASTY, "Crow & Rook", "Black-footed Albatross", "Owl", "Snipe\u2028</script>")
BIRDS += ("<b>Kite</b>", "Swift")
TARGETS = "batch-diffusion(omega=0.3)"


@cache
def picture(label: int, number: int, crop: bool = False) -> bytes:
    """A class's figure in the class's colour, turned by the item's number; a crop is its middle."""
    image = Image.new("RGB", (48, 48), (250 - 5 * (number % 8), 246, 238))
    hue = tuple(int(90 + 130 * abs(np.sin(label * step + 1))) for step in (1.3, 2.1, 3.7))
    ImageDraw.Draw(image).regular_polygon((24, 24, 19 - number % 5), 3 + label % 6, rotation=11 * number, fill=hue, outline=(40, 40, 40))
    if crop:
        image = image.crop((16, 16, 40, 40)).resize((48, 48))
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=70)
    return buffer.getvalue()


def nearest(queries: np.ndarray, rows: np.ndarray, allowed: np.ndarray, k: int) -> Neighbours:
    """The k rows of greatest cosine among those allowed; -1 where there are fewer."""
    cosines = np.where(allowed, queries @ rows.T, -np.inf)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(cosines, order, axis=1)
    there = np.isfinite(best)
    return Neighbours(indices=np.where(there, order, -1).astype(np.int64), cosines=np.where(there, best, 0).astype(np.float32))


def right(run: Run, labels: np.ndarray) -> np.ndarray:
    """Whether the nearest other of each item is of its class."""
    return labels[run.neighbours.indices[:, 0]] == labels


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def made_run(name: str, seed: int, noise: float, labels: np.ndarray, classes: int, local: np.ndarray, images: bool, batch: int) -> Run:
    """Rows around class centres, the fewer mistakes the smaller the noise; all else follows from them or is drawn by the seed."""
    generator = np.random.default_rng(seed)
    centres = unit(np.random.default_rng(7).standard_normal((classes, 6)))
    rows = unit(centres[labels] + noise * generator.standard_normal((len(labels), 6)))
    crops = unit(rows[local] + 0.3 * generator.standard_normal((len(local), 6)))
    same, itself = labels[:, None] == labels, np.eye(len(labels), dtype=bool)
    neighbours = nearest(rows, rows, ~itself, 5)
    found = labels[neighbours.indices[:, 0]] == labels
    near = nearest(crops, rows, ~itself[local], 5)
    cosines = (rows @ rows.T)[:batch, :batch].astype(np.float32)
    targets = np.exp(cosines * 8) / np.exp(cosines * 8).sum(axis=1, keepdims=True)
    edges = np.linspace(0, 2, 21)
    intra, inter = (np.histogram(1 - (rows @ rows.T)[pairs], edges)[0] / pairs.sum() for pairs in (same & ~itself, ~same))
    bins = np.linspace(-0.9, 0.9, 10)
    matrices = {
        ("Teacher's similarities", "similarity"): cosines,
        ("Targets of PSD", "targets"): targets,
        ("Targets of OBD-SD", "refined"): 0.5 * targets + 0.5 * targets @ targets,
        ("Control", "refined"): 0.7 * targets + 0.3 * targets.mean(axis=0),
        ("Student's similarities", "similarity"): cosines * 0.9,
    }
    return Run(
        name=name,
        seed=seed,
        folder=f"runs/{name.lower().replace(' ', '-')}",
        map=(rows[:, :2] * 20 + rows[:, 2:4] * 9).astype(np.float32),
        neighbours=neighbours,
        positive=nearest(rows, rows, same & ~itself, 1),
        local=near if images else None,
        local_recall=float((labels[near.indices[:, 0]] == labels[local]).mean()) if images else None,
        per_class=[float(found[labels == label].mean()) for label in range(classes)],
        scores={"Recall@1, %": f"{100 * found.mean():.2f}", "MAP@R, %": f"{60 * found.mean():.2f}"},
        geometry=Geometry(
            spectrum=list(np.exp(-np.arange(32) * (0.1 + 0.1 * noise)) / 10),
            distances=PairShares(centres=list(edges[:-1] + 0.05), same=list(intra), different=list(inter)),
            gradient=PairShares(centres=list(bins), same=list(np.exp(-2 * bins) / 30), different=list(np.exp((2 + noise) * bins) / 30)),
        ),
        batch=Batch(
            matrices=[
                Matrix(title=title, kind=kind, sentence=f"What {title} shows.", values=values.astype(np.float32))
                for (title, kind), values in matrices.items()
            ],
            classes=[BIRDS[label % len(BIRDS)] for label in labels[:batch]],
            which="epoch 3, batch 1",
        ),
        cost=Cost(seconds=0.1 + 0.02 * seed, teacher=0.22, targets=0.013 * seed, memory_mib=812.0 if images else None),
        training_seconds=754.0,
        options={
            "seed": seed,
            "loss": "multi-similarity",
            "targets": "batch-diffusion(omega=0.3)" if "OBD" in name else None,
            "epochs": 12,
        },
        versions={"obdsd": "0.1.0", "torch": "2.10"},
    )


def made_curves(runs, scores) -> list[Curve]:
    """Over twelve epochs; only runs with OBD-SD in their names distil."""
    epochs = range(1, 13)
    lines = {
        "Base loss": [[(epoch, 2 * np.exp(-epoch / 5) + 0.1 * share) for epoch in epochs] for share in scores],
        "Distillation loss": [[(epoch, 0.2 + 0.05 * epoch) for epoch in epochs[1:]] if "OBD" in run.name else [] for run in runs],
        "Recall@1, held-out classes": [[(epoch, share * (1 - np.exp(-epoch / 3))) for epoch in range(0, 13, 2)] for share in scores],
        "Density": [[(epoch, 1 - share + 0.02 * epoch) for epoch in epochs] for share in scores],
        "Spectral decay": [[(epoch, float("inf") if epoch == 1 else 0.6 - 0.03 * epoch * share) for epoch in epochs] for share in scores],
    }
    return [Curve(title=title, sentence=f"What {title} tells.", lines=each) for title, each in lines.items()]


def made_content(
    classes: int = 12, each: int = 8, names=("Multi-similarity", "with OBD-SD"), images: bool = True, batch: int = 24
) -> Content:
    """Runs on the same items; the first is the noisiest."""
    labels = np.repeat(np.arange(classes), each)
    local = np.arange(0, len(labels), 5) if images else np.empty(0, np.int64)
    noise = np.linspace(0.4, 0.3, len(names)) if len(names) > 1 else [0.3]
    runs = [made_run(name, seed, noise[seed], labels, classes, local, images, batch) for seed, name in enumerate(names)]
    called = [BIRDS[label] if label < len(BIRDS) else f"Class {label:03}" for label in range(classes)]
    first, *others = scores = [float(right(run, labels).mean()) for run in runs]
    intervals = [None, *(Interval(score - first, score - first - 0.02, score - first + 0.02) for score in others)]
    compared = list(zip(names[1:], others, strict=True))
    return Content(
        title="OBD-SD against its baseline on made-up birds",
        chart=chart_of(list(map(Estimate, names, scores, intervals)), {"frozen features": first - 0.04}, "Dots are means over 5 seeds."),
        sentences=[
            f"{names[0]}: for {first:.1%} of the queries the nearest other item is of their class.",
            *(f"{name}: {score:.1%}, better." for name, score in compared),
        ],
        header=["method", "Recall@1", "difference", "95 % interval", "MAP@R"],
        rows=[
            [names[0], f"{first:.2%}", "–", "–", f"{0.6 * first:.2%}"],
            *([name, f"{score:.2%}", f"{score - first:+.2%}", "+1.1 … +9.3", f"{0.6 * score:.2%}"] for name, score in compared),
        ],
        caption="Paired over 5 seeds; intervals by Student's t.",
        facts={"Data": "made-up birds", "Resolution": "48 × 48", "Epoch": "the best on held-out training classes"},
        curves=made_curves(runs, scores),
        classes=called,
        labels=labels,
        names=[f"{called[label][:12]}/{place:04}.jpg" for place, label in enumerate(labels)],
        pictures=[picture(int(label), place % each) if images else None for place, label in enumerate(labels)],
        shown=np.arange(len(labels)),
        asking=np.arange(len(labels)),
        local_queries=local,
        local_pictures=[picture(int(labels[item]), int(item) % each, crop=True) for item in local],
        chosen_queries=np.array([17, 3]),
        runs=runs,
        commands=["obdsd compare multi-similarity obd-sd --data birds --seeds 5", "obdsd report runs/* --out report.html"],
    )
