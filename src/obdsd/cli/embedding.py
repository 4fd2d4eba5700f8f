"""A model and the data that it embeds, as `obdsd embed` and `obdsd evaluate` need them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.cli.progress import bar
from obdsd.data import Collection, Part, open_data
from obdsd.data.loading import loader_workers
from obdsd.data.transforms import evaluation_transform
from obdsd.errors import InputError
from obdsd.evaluation.embedding import embed
from obdsd.files import read_mapping
from obdsd.models import Embedder, open_model
from obdsd.models.devices import choose_device
from obdsd.options import EmbedOptions, EvaluateOptions


def open_both(data: str, options: EmbedOptions | EvaluateOptions) -> tuple[Embedder, Collection]:
    """The model and the collection, which must go together."""
    split = _split_of(options)
    collection = open_data(data, seed=split["split_seed"], test_fraction=split["test_fraction"], allow_incomplete=options.allow_incomplete)
    embedder = open_model(options.model)
    wants_images = embedder.preprocessing is not None
    if wants_images != (collection.kind == "images"):
        wanted = "images" if wants_images else "embeddings"
        raise InputError(f"{data}: holds {collection.kind}, but model={options.model} is made for {wanted}; give data that it fits")
    if not wants_images:
        (length,) = collection["train"][0][0].shape
        if length != embedder.feature_dim:
            remedy = "give the features that it was trained on"
            raise InputError(f"{data}: vectors have length {length}, but model={options.model} takes {embedder.feature_dim}; {remedy}")
    return embedder, collection


def _split_of(options: EmbedOptions | EvaluateOptions) -> dict[str, Any]:
    """How classes are split: as asked, and as the run did whose model this is, since its training classes must not be taken for test."""
    folder = Path(options.model).expanduser()
    places = [folder, folder.resolve().parent] if (folder / "model.json").is_file() else [folder]  # a model lies in its run
    trained = next((read_mapping(place / "config.yaml") for place in places if (place / "config.yaml").is_file()), {})
    split = {}
    for name, usual in (("split_seed", 0), ("test_fraction", 0.5)):
        asked, own = getattr(options, name), trained.get(name)
        if own is not None and asked is not None and asked != own:
            raise InputError(f"{name}={asked} is not the {own} that model={options.model} was trained with; leave it out")
        split[name] = own if own is not None else usual if asked is None else asked
    return split


def embed_part(embedder: Embedder, part: Part, options: EmbedOptions | EvaluateOptions) -> NDArray[np.float32]:
    """The rows of a part's items, in their order, prepared as the model expects them."""
    unit = "embeddings"
    if embedder.preprocessing is not None:
        unit, part = "images", part.replace(transform=evaluation_transform(embedder.preprocessing))
    device, workers = choose_device(options.device), loader_workers(options.workers, part)
    with bar("embedding", len(part), unit) as advance:
        return embed(embedder.to(device), part, batch_size=options.batch_size, workers=workers, device=device, advance=advance)
