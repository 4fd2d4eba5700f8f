"""How the runs' models see the items of a report: every image is read once for all models that prepare it alike."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from obdsd.counting import Progress, counted
from obdsd.data import Collection, Part, Photos, open_data
from obdsd.data.collection import loader_workers
from obdsd.data.transforms import evaluation_transform
from obdsd.errors import InputError
from obdsd.evaluation.embedding import embed
from obdsd.loading import Loader
from obdsd.models import Embedder
from obdsd.models.inference import for_inference
from obdsd.report.items import Shown

SIDE = 56  # pixels of a picture's longer side
QUALITY = 70  # of WebP: less than a kilobyte for a photograph
CROPS = 200  # queries of which a crop searches
CROP_SIDE = 0.5  # of the image's sides
BATCH = 32  # items that are read and seen at a time; progress is told after each batch

Rows = NDArray[np.float32]
Advance = Callable[[int], None]  # told how many more are done


@dataclass(frozen=True, eq=False)
class Crops(Part):
    """A seeded crop of each image of a part, half of its sides long."""

    seed: int = 0

    def __getitem__(self, index: int) -> tuple[Any, int, int]:
        position = int(self.positions[index])
        image = self.items.read(position)
        width, height = (max(1, round(CROP_SIDE * side)) for side in image.size)
        place = np.random.default_rng((self.seed, position))
        left, top = (int(place.integers(0, side - length + 1)) for side, length in zip(image.size, (width, height), strict=True))
        crop = image.crop((left, top, left + width, top + height))
        return (crop if self.transform is None else self.transform(crop)), int(self.labels[index]), index


class Lent(Part):
    """Images that are only looked at: one that cannot be read is empty."""

    def __getitem__(self, index: int) -> tuple[Any, int, int]:
        try:
            return super().__getitem__(index)
        except InputError:
            return b"", int(self.labels[index]), index


class Views(NamedTuple):
    """Pictures, and each model's unit rows: of the items, of a sample of the training set, and of crops of some queries."""

    pictures: Sequence[bytes | None]
    lent: str  # where pictures of rows come from, and how many; or why there are none
    rows: Sequence[Rows]
    training: Sequence[Rows]
    queries: NDArray[np.int64]  # that are cropped; none if items are no images
    crop_pictures: Sequence[bytes | None]
    crops: Sequence[Rows]


def views_of(
    models: Sequence[Embedder],
    kept: Sequence[Mapping[str, Rows]],
    collection: Collection,
    shown: Shown,
    training: Part,
    pictures_from: str | None,
    seed: int,
    device: torch.device,
    show: Progress,
) -> Views:
    """`kept` holds what each model made of whole parts, if that was kept; the rest is embedded now."""
    numbers = shown.numbers(shown.asking)
    most = CROPS if all(model.preprocessing is not None for model in models) else 0  # only images have crops
    queries = np.sort(np.random.default_rng(seed).permutation(numbers)[:most])
    crops = Crops(**vars(shown.parts[shown.asking].take(queries - numbers[0])), seed=seed)
    advance = counted(show, "pictures for the page", sum(map(len, shown.parts.values())) + len(crops))
    pictures, lent = _pictures(collection, shown, pictures_from, advance)
    crop_pictures = pictures_of(crops, advance)
    parts, known = [*shown.parts.items(), ("train", training)], []
    for name, part in parts:
        place = {position: place for place, position in enumerate(collection[name].positions.tolist())}
        chosen = [place[position] for position in part.positions.tolist()]
        known.append({number: own[name][chosen] for number, own in enumerate(kept) if name in own})
    left = sum(len(part) * (len(models) - len(own)) for (_, part), own in zip(parts, known, strict=True))  # the estimate is of what is left
    advance = counted(show, "embedding for the page", left + len(crops) * len(models))
    seeing = [for_inference(model) for model in models]
    *of_items, of_training = (_rows(seeing, part, own, device, advance) for (_, part), own in zip(parts, known, strict=True))
    rows = [np.concatenate(own) for own in zip(*of_items, strict=True)]
    return Views(pictures, lent, rows, of_training, queries, crop_pictures, _rows(seeing, crops, {}, device, advance) if len(crops) else [])


def _pictures(collection: Collection, shown: Shown, asked: str | None, advance: Advance) -> tuple[list[bytes | None], str]:
    """Of each item, and where they come from: those asked for by name, those that rows remember as long as they are there, or their own."""
    photos, reason = Photos(asked) if asked else collection.photos, ""
    if photos is not None:
        try:
            found = pictures_by_name(photos, shown.names, advance)
            return found, f"{sum(map(bool, found)):,} of {len(found):,} items have a picture of their name in {photos.source}"
        except (InputError, OSError) as fault:
            if asked:
                raise
            reason = f"none, the images that were embedded are not there any more ({fault}); --pictures says where they are"
    return [picture for part in shown.parts.values() for picture in pictures_of(part, advance)], reason


class Several(nn.ModuleList):
    """Models that see the same input: their rows beside each other."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([model(x) for model in self], dim=1)

    def tell(self, advance: Advance, count: int) -> None:
        advance(len(self) * count)


def _rows(models: Sequence[Embedder], part: Part, known: Mapping[int, Rows], device: torch.device, advance: Advance) -> list[Rows]:
    """Each model's rows of a part: those that are known by the model's number, else by the model."""
    found = dict(known)
    for preprocessing in dict.fromkeys(model.preprocessing for model in models):
        alike = [number for number, model in enumerate(models) if model.preprocessing == preprocessing and number not in known]
        if not alike:
            continue
        items = part if preprocessing is None else part.replace(transform=evaluation_transform(preprocessing))
        together, workers = Several([for_inference(models[number]) for number in alike]), loader_workers(None, part)
        rows = embed(together, items, batch_size=BATCH, workers=workers, device=device, advance=partial(together.tell, advance))
        ends = np.cumsum([models[number].dim for number in alike])[:-1]
        found |= {number: np.ascontiguousarray(own) for number, own in zip(alike, np.split(rows, ends, axis=1), strict=True)}
    return [found[number] for number in range(len(models))]


def thumbnail(image: Image.Image, side: int = SIDE) -> bytes:
    """A small picture of the whole image, as WebP; one that is small already keeps its size."""
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.BICUBIC, reducing_gap=2.0)
    file = io.BytesIO()
    small.save(file, "WEBP", quality=QUALITY)
    return file.getvalue()


def pictures_of(part: Part, advance: Advance, side: int = SIDE) -> list[bytes | None]:
    """Of each item; None where items are no images."""
    if part.is_rows:
        advance(len(part))
        return [None] * len(part)
    found: list[bytes | None] = []
    seen = part.replace(transform=partial(thumbnail, side=side))
    with closing(Loader(seen, batch_size=BATCH, num_workers=loader_workers(None, part))) as loader:
        for small, *_ in loader:
            found += [picture or None for picture in small]
            advance(len(small))
    return found


def pictures_by_name(photos: Photos, names: Sequence[str], advance: Advance, side: int = SIDE) -> list[bytes | None]:
    """Pictures of items that are rows, from a collection of the images that the rows were made of: by their names. An image that cannot be
    read any more gives none."""
    source, collection = photos.source, open_data(photos.source, root=photos.root, allow_incomplete=True)
    if collection.kind != "images":
        raise InputError(f"pictures={source}: holds {collection.kind}, no images; give the images that were embedded")
    found: dict[str, bytes | None] = {}
    wanted = set(names)
    for part in collection.parts.values():
        chosen = {index: name for index in range(len(part)) if (name := part.name(index)) in wanted}
        if chosen:
            found |= dict(zip(chosen.values(), pictures_of(Lent(**vars(part.take(np.array(list(chosen))))), advance, side), strict=True))
    if not found:
        raise InputError(f"pictures={source}: has no item of the name {names[0]!r}; give the images that were embedded")
    return [found.get(name) for name in names]
