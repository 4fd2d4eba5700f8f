"""From a model and a data set to rows, in the order of the data set."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sized
from contextlib import closing
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.loading import Loader


@runtime_checkable
class Labelled(Sized, Protocol):
    """A map-style data set of (tensor, label, index)."""

    def __getitem__(self, index: int) -> tuple[Any, int, int]: ...


def embedded(
    model: nn.Module, items: Labelled, *, batch_size: int = 128, workers: int = 0, device: torch.device | str = "cpu"
) -> Generator[Float[np.ndarray, "n d"], None, None]:
    """The model's rows of one batch after the other, float32, in the order of the items; the model sees them in eval mode and is left in
    the mode it was in."""
    if not len(items):
        raise InputError("items: there is nothing to embed; check the data")
    loader = Loader(items, batch_size=batch_size, num_workers=workers, pin_memory=torch.device(device).type == "cuda")
    was_training = model.training
    model.eval()
    try:
        with closing(loader):
            for inputs, *_ in loader:
                with torch.inference_mode():
                    rows: Tensor = model(inputs.to(device, non_blocking=True)).float().cpu()
                yield rows.numpy()
    finally:
        model.train(was_training)


def embed(
    model: nn.Module,
    items: Labelled,
    *,
    batch_size: int = 128,
    workers: int = 0,
    device: torch.device | str = "cpu",
    advance: Callable[[int], None] = lambda count: None,
) -> Float[np.ndarray, "n d"]:
    """The model's rows for all items, as `embedded` gives them. `advance` is told how many items each batch held."""
    rows: np.ndarray | None = None
    done = 0
    with closing(embedded(model, items, batch_size=batch_size, workers=workers, device=device)) as batches:
        for found in batches:
            if rows is None:
                rows = np.empty((len(items), found.shape[1]), dtype=np.float32)
            rows[done : done + len(found)] = found
            done += len(found)
            advance(len(found))
    assert rows is not None
    return rows
