"""An index as it is served: opened, warm, with its model ready, and looked at for changes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from obdsd.data.transforms import Prepared, evaluation_transform
from obdsd.models.devices import choose_device
from obdsd.models.inference import for_inference
from obdsd.search import Answer, Index, Pass, Query
from obdsd.search.fitting import canonical
from obdsd.search.folder import SETTINGS
from obdsd.search.how import Progress, silent

NO_RERANKING = "none"
BATCH = 16  # images that the model sees at a time
Stamp = tuple[int, int, int] | None


@dataclass(frozen=True, eq=False)
class Opened:
    """An index that is not changed any more: after a change of its folder there is another one.

    Attributes:
        rerank: The re-ranker that is offered, or None.
        transform: What the model sees of an image; None if it knows no images.
        stamp: Tells the state of the folder from others.
    """

    index: Index
    rerank: str | None
    transform: Prepared | None
    device: torch.device
    stamp: Stamp

    @cached_property
    def labels(self) -> dict[str, int]:
        """How many items have which label."""
        return dict(sorted(Counter(item.label for item in self.index.items if item.label is not None).items()))

    def pixels(self, image: Image.Image) -> Tensor:
        """What the model sees of an image, as bytes."""
        assert self.transform is not None
        return self.transform.crop(image)

    def rows(self, pixels: Sequence[Tensor]) -> NDArray[np.float32]:
        """A row for each image."""
        assert self.transform is not None
        with torch.inference_mode():
            numbers = self.transform.numbers(torch.stack(list(pixels)).to(self.device))
            return self.index.embedder(numbers).float().cpu().numpy()

    def search(self, query: Query, k: int, rerank: bool = False, threshold: float | None = None, within: str | None = None) -> Answer:
        spec = self.rerank if rerank else None
        how = Pass(workers=0, device=str(self.device))
        return self.index.search([query], k, rerank=spec, threshold=threshold, within=within, how=how)[0]


def open_index(
    path: Path, rerank: str = "diffusion", device: str = "auto", *, progress: Progress = silent, before: Opened | None = None
) -> Opened:
    """The index in a folder, ready for its first search.

    Args:
        path: The folder.
        rerank: The re-ranker that is offered. Its work on the index is done now, if it is not kept there. `none` offers none.
        device: Where the model runs.
        progress: Told how far the re-ranker's work is.
        before: The same index before a change, whose model is taken if it is still that of the index.
    """
    spec, place, stamp = canonical(rerank), choose_device(device), stamp_of(path)
    index = Index.open(path)
    if before is not None and before.index.settings.model == index.settings.model:
        index.embedder = before.index.embedder
    else:
        index.embedder = for_inference(index.embedder.to(place))
    known = index.embedder.preprocessing
    transform = None if known is None else evaluation_transform(known)
    opened = Opened(index, None if spec == NO_RERANKING else spec, transform, place, stamp)
    _warm(opened, progress)
    return opened


def _warm(opened: Opened, progress: Progress) -> None:
    """What is done once is done now."""
    if opened.rerank is not None:
        opened.index.search([Query("the first item", position=0)], 1, rerank=opened.rerank, how=Pass(progress=progress))
    opened.search(Query("the first item", position=0), 1)
    if opened.transform is not None:
        pixels = opened.pixels(Image.new("RGB", (64, 64)))
        for count in (1, BATCH):
            opened.rows([pixels] * count)


def stamp_of(path: Path) -> Stamp:
    """Tells the state of an index from others without reading it; None if it is not there."""
    try:
        about = os.stat(path / SETTINGS)
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino
