"""The numbers of a report as compact JSON that is safe inside a page."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.report.content import Batch, Content, Curve, Histogram, Neighbours, Run

NOTHING = 65535  # the code of a number that is none


def safe_json(value: object) -> str:
    """JSON that ends no script element and no line of JavaScript, whatever names are in it.

    >>> print(safe_json({"class": "</script>"}))
    {"class":"\\u003c/script\\u003e"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def finite(value: float) -> float | None:
    """Six digits of it, or nothing: JSON has no NaN and no infinity."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def pack_indices(indices: NDArray[np.integer[Any]]) -> dict[str, Any]:
    """Item numbers as bytes, two each if that suffices; -1 stands for none."""
    wide = indices.size > 0 and int(indices.max()) >= NOTHING
    codes = np.where(indices < 0, 2**32 - 1 if wide else NOTHING, indices).astype("<u4" if wide else "<u2")
    return {"kind": "wide" if wide else "index", "data": b64encode(codes.tobytes()).decode()}


def pack_numbers(numbers: NDArray[np.floating[Any]]) -> dict[str, Any]:
    """Numbers to 1/65534 of their range, as two bytes each; what is not finite becomes none."""
    values = np.asarray(numbers, np.float64)
    there = np.isfinite(values)
    low = float(values[there].min()) if there.any() else 0.0
    step = ((float(values[there].max()) - low) / (NOTHING - 1) if there.any() else 0.0) or 1.0
    codes = np.where(there, np.round((np.where(there, values, low) - low) / step), NOTHING).astype("<u2")
    return {"kind": "number", "low": low, "step": step, "data": b64encode(codes.tobytes()).decode()}


def compressed(text: str) -> str:
    """Gzip in base64, the same for the same text."""
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def pictures_json(content: Content) -> str:
    """Every picture once, those of the crops after those of the items."""
    pictures: Iterable[bytes | None] = [*(item.picture for item in content.items), *content.local_pictures]
    return safe_json([b64encode(picture).decode() if picture else None for picture in pictures])


def numbers_json(content: Content) -> str:
    """All that the page's script draws, but for the pictures."""
    return safe_json(
        {
            "classes": list(content.classes),
            "labels": pack_indices(np.array([item.label for item in content.items], np.int64)),
            "names": [item.name for item in content.items],
            "shown": pack_indices(content.shown),
            "asking": pack_indices(np.arange(len(content.items)) if content.asking is None else content.asking),
            "local": pack_indices(content.local_queries),
            "crops": len(content.local_pictures) > 0,
            "chosen": pack_indices(content.chosen_queries),
            "curves": [_curve(curve) for curve in content.curves],
            "runs": [_run(run) for run in content.runs],
        }
    )


def _run(run: Run) -> dict[str, Any]:
    geometry = run.geometry
    return {
        "name": run.name,
        "x": pack_numbers(run.map[:, 0]),
        "y": pack_numbers(run.map[:, 1]),
        "neighbours": _neighbours(run.neighbours),
        "positive": _neighbours(run.positive),
        "local": _neighbours(run.local),
        "localRecall": run.local_recall,
        "right": "".join("01"[int(right)] for right in run.right),
        "perClass": [finite(recall) for recall in run.per_class],
        "spectrum": [finite(value) for value in geometry.spectrum],
        "intra": _histogram(geometry.intra),
        "inter": _histogram(geometry.inter),
        "gradient": {name: [finite(value) for value in values] for name, values in geometry.gradient.items()},
        "batch": _batch(run.batch),
        "cost": None if run.cost is None else dataclasses.asdict(run.cost),
    }


def _neighbours(neighbours: Neighbours | None) -> dict[str, Any] | None:
    if neighbours is None:
        return None
    indices = neighbours.indices
    return {"each": indices.shape[1], "indices": pack_indices(indices), "cosines": pack_numbers(neighbours.cosines)}


def _histogram(histogram: Histogram) -> Mapping[str, Sequence[float | None]]:
    return {"edges": [finite(edge) for edge in histogram.edges], "shares": [finite(share) for share in histogram.shares]}


def _batch(batch: Batch) -> dict[str, Any]:
    matrices = [
        {"title": matrix.title, "kind": matrix.kind, "sentence": matrix.sentence, "values": pack_numbers(matrix.values)}
        for matrix in batch.matrices
    ]
    return {"matrices": matrices, "classes": list(batch.classes), "which": batch.which}


def _curve(curve: Curve) -> dict[str, Any]:
    lines = [[[epoch, finite(value)] for epoch, value in line] for line in curve.lines]
    return {"title": curve.title, "sentence": curve.sentence, "lines": lines}
