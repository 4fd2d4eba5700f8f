"""How the runs' models see the items of a report: every image is read once for all models that prepare it alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from obdsd.data import Collection, Part
from obdsd.data.collection import loader_workers
from obdsd.data.transforms import evaluation_transform
from obdsd.evaluation.embedding import Labelled, embed
from obdsd.evaluation.metrics import Progress
from obdsd.models import Embedder
from obdsd.preprocessing import Preprocessing
from obdsd.report.items import Shown
from obdsd.report.pictures import Crops, pictures, pictures_by_name, pictures_of, thumbnail

CROPS = 500  # queries of which a crop searches

Rows = NDArray[np.float32]
Known = Mapping[str, Mapping[int, Rows]]  # of a part by name, the row of the item at a position of the collection


@dataclass(frozen=True, eq=False, kw_only=True)
class Views:
    """Pictures, and each model's unit rows: of the items, of a sample of the training set, and of crops of some queries."""

    pictures: Sequence[bytes | None]
    rows: Sequence[Rows]
    training: Sequence[Rows]
    queries: NDArray[np.int64]  # that are cropped; none if items are no images
    crop_pictures: Sequence[bytes]
    crops: Sequence[Rows]


def views_of(
    models: Sequence[Embedder],
    known: Sequence[Known],
    shown: Shown,
    training: Part,
    pictures_from: str | None,
    seed: int,
    device: torch.device,
    show: Progress,
) -> Views:
    """`known` says of each model what it made of parts, if that was kept; the rest is embedded now."""
    parts = list(shown.parts.values())
    total = sum(map(len, parts))
    advance = _counter("pictures", total, show)
    if pictures_from is None:
        small = [picture for part in parts for picture in pictures_of(part, advance)]
    else:
        small = pictures_by_name(pictures_from, shown.names, advance)
    advance = _counter("embedding", (total + len(training)) * len(models), show)
    by_part = [rows_with(models, known, name, part, device, advance) for name, part in shown.parts.items()]
    rows = [np.concatenate(own) for own in zip(*by_part, strict=True)]
    training_rows = rows_with(models, known, "train", training, device, advance)
    queries, crop_pictures, crops = np.empty(0, dtype=np.int64), [], []
    if all(model.preprocessing is not None for model in models):
        numbers = shown.numbers(shown.asking)
        queries = np.sort(np.random.default_rng(seed).permutation(numbers)[:CROPS])
        part = parts[0].take(queries - numbers[0])
        workers = loader_workers(None, part)
        advance = _counter("crops", len(part) * (1 + len(models)), show)
        crop_pictures = pictures(Crops(part, seed, thumbnail), workers, advance)
        crops = embed_with(models, lambda transform: Crops(part, seed, transform), workers, device, advance)
    return Views(pictures=small, rows=rows, training=training_rows, queries=queries, crop_pictures=crop_pictures, crops=crops)


def known_rows(collection: Collection, kept: Mapping[str, Rows]) -> Known:
    """Rows of whole parts by the position of each item."""
    return {name: dict(zip(collection[name].positions.tolist(), rows, strict=True)) for name, rows in kept.items()}


def rows_with(
    models: Sequence[Embedder], known: Sequence[Known], name: str, part: Part, device: torch.device, advance: Callable[[int], None]
) -> list[Rows]:
    """Each model's rows of some items of a part: those that were kept, else by the model."""
    found = {place: np.stack([own[name][position] for position in part.positions]) for place, own in enumerate(known) if name in own}
    advance(len(found) * len(part))
    left = [place for place in range(len(models)) if place not in found]
    if left:
        asked, workers = [models[place] for place in left], loader_workers(None, part)
        fresh = embed_with(asked, lambda transform: part.replace(transform=transform), workers, device, advance)
        found |= dict(zip(left, fresh, strict=True))
    return [found[place] for place in range(len(models))]


class Several(nn.Module):
    """Models that see the same input: their rows beside each other."""

    def __init__(self, models: Sequence[Embedder]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([model(x) for model in self.models], dim=1)


def embed_with(
    models: Sequence[Embedder],
    items: Callable[[Any], Labelled],
    workers: int,
    device: torch.device,
    advance: Callable[[int], None] = lambda count: None,
) -> list[Rows]:
    """Each model's rows of the same items; `items` gives the data set whose images go through a transform (None for rows)."""
    found: dict[int, Rows] = {}
    for preprocessing, places in _alike(models):
        together = [models[place] for place in places]
        transform = None if preprocessing is None else evaluation_transform(preprocessing)
        model, told = Several(together), _times(len(together), advance)
        rows = embed(model, items(transform), batch_size=256, workers=workers, device=device, advance=told)
        ends = np.cumsum([model.dim for model in together])[:-1]
        found |= {place: np.ascontiguousarray(own) for place, own in zip(places, np.split(rows, ends, axis=1), strict=True)}
    return [found[place] for place in range(len(models))]


def _alike(models: Sequence[Embedder]) -> list[tuple[Preprocessing | None, list[int]]]:
    """Places of the models by how they want an image prepared."""
    kinds = list(dict.fromkeys(model.preprocessing for model in models))
    return [(kind, [place for place, model in enumerate(models) if model.preprocessing == kind]) for kind in kinds]


def _times(number: int, advance: Callable[[int], None]) -> Callable[[int], None]:
    return lambda count: advance(number * count)


def _counter(stage: str, total: int, show: Progress) -> Callable[[int], None]:
    """A function to be told how many more are done."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        show(stage, done, total)

    show(stage, 0, total)
    return advance
