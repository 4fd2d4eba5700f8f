"""The batches of a training, on this process's share of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from obdsd.data import Part
from obdsd.data.batches import Batches, ClassBatches, InstanceBatches, RoundBatches
from obdsd.data.collection import loader_workers
from obdsd.data.decoded import reduced
from obdsd.data.transforms import Augmented, RandomCrop, ToNumbers
from obdsd.errors import InputError
from obdsd.loading import Loader
from obdsd.models import Embedder
from obdsd.options import TrainOptions
from obdsd.preprocessing import Preprocessing


def sampler_of(options: TrainOptions, part: Part, rank: int = 0, processes: int = 1) -> Batches:
    """Which items are in which batch."""
    shape: dict[str, Any] = {"batch_size": options.batch_size, "per_class": options.per_class, "seed": options.seed}
    shape |= {"rank": rank, "world_size": processes}
    sampler: Batches
    if options.supervision == "none":
        sampler = InstanceBatches(len(part), **shape)
    elif options.batches == "rounds":
        sampler = RoundBatches(part.labels, **shape)
    else:
        sampler = ClassBatches(part.labels, **shape, replacement=options.replacement)
    if options.epoch_batches:
        sampler.number = min(sampler.number, options.epoch_batches)
    return sampler


class TrainingBatches:
    """The batches of any epoch as (inputs, labels, indices), a function of seed and epoch; of several processes, this one's slice.

    With `teachers`, what another teacher expects of images, its own inputs of the same crops come fourth; with `another_view` those of
    other crops.
    """

    def __init__(
        self,
        options: TrainOptions,
        part: Part,
        model: Embedder,
        sampler: Batches | None = None,
        teachers: Preprocessing | None = None,
        another_view: bool = False,
    ) -> None:
        self.sampler = sampler or sampler_of(options, part)
        self.rows: Tensor | None = None
        self.loader: Loader | None = None
        self.labels = torch.from_numpy(part.labels)
        if model.preprocessing is None:  # rows of a matrix: no item is read alone
            if options.supervision == "none" and options.per_class > 1:
                remedy = "give images, or learn from a teacher alone with loss=none and per_class=1"
                raise InputError(f"supervision=none needs two views of an image, and rows of an embeddings file have one; {remedy}")
            self.rows = torch.from_numpy(part.matrix())
            return
        part = reduced(part, options.cache_side or 0, model.preprocessing.interpolation)
        shown = teachers or (model.preprocessing if another_view else None)
        seen = [each for each in (model.preprocessing, shown) if each]
        crop, *others = (RandomCrop(each, options.crop, options.flip) for each in seen)
        images: Any = Augmented(part, crop, options.seed, others[0] if others else None, another_view)
        self.numbers = [ToNumbers(each) for each in seen]
        workers = loader_workers(options.workers, part)
        self.loader = Loader(
            images,
            batch_sampler=self.sampler,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
        )

    def __len__(self) -> int:
        return self.sampler.number

    def close(self) -> None:
        """End the processes that load images."""
        if self.loader is not None:
            self.loader.close()

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, ...]]:
        """From batch `first` on."""
        self.sampler.set_epoch(epoch, first)
        if self.loader is not None:
            for pixels, labels, indices, *shown in self.loader:
                inputs, *others = (numbers(each) for numbers, each in zip(self.numbers, (pixels, *shown), strict=True))
                yield inputs, labels, indices, *others
            return
        assert self.rows is not None
        for draws in self.sampler:
            indices = torch.tensor([draw.item for draw in draws])
            yield self.rows[indices], self.labels[indices], indices
