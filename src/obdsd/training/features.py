"""What a backbone makes of the items of a collection, computed once for all runs that begin with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np
import torch
from numpy.typing import NDArray

from obdsd.cache import cached, kept
from obdsd.data import Collection, Part
from obdsd.data.collection import loader_workers
from obdsd.data.decoded import at_a_test
from obdsd.data.items import Rows
from obdsd.evaluation.embedding import embed
from obdsd.models import Embedder
from obdsd.models.inference import for_inference
from obdsd.models.weights import state_digest

Features = NDArray[np.float32]
Advance = Callable[[int], None]


def unit_features(
    model: Embedder,
    collection: Collection,
    *,
    device: torch.device,
    workers: int | None,
    batch_size: int,
    advance: Advance = lambda count: None,
) -> dict[str, Features]:
    """The pooled features of each part's items as unit rows, by the model's backbone as it stands. `advance` is told of each batch.

    Items are known by their content, so that the same photos in another split, or under other names, are not computed again.
    """
    digests = {name: part.digests() for name, part in collection.parts.items()}
    first: dict[str, tuple[str, int]] = {}  # where each content is met first
    for name, own in digests.items():
        for index, digest in enumerate(own):
            first.setdefault(digest, (name, index))
    order = sorted(first)

    def make() -> dict[str, NDArray[np.generic]]:
        assert model.preprocessing is not None
        bare, rows = for_inference(model.headless().to(device)), dict[str, Features]()
        for name, part in collection.parts.items():
            new = [digest for digest in order if first[digest][0] == name]
            if new:
                items = at_a_test(part.take(np.array([first[digest][1] for digest in new])), model.preprocessing)
                found = embed(bare, items, batch_size=batch_size, workers=loader_workers(workers, part), device=device, advance=advance)
                rows |= dict(zip(new, found, strict=True))
        return {"rows": np.stack([rows[digest] for digest in order])}

    rows = cached(_key(model, order, device), make)["rows"]
    place = {digest: number for number, digest in enumerate(order)}
    return {name: rows[[place[digest] for digest in own]] for name, own in digests.items()}


def known_rows(model: Embedder, collection: Collection, part: Part, device: torch.device) -> Features | None:
    """Rows of a part's items by a model whose features of the whole collection were computed before, as by the training of its head;
    None where they were not, or where the head wants more than unit features."""
    own = model.architecture
    if model.preprocessing is None or not (own.unit_features or own.head == "none"):
        return None
    order = sorted({digest for each in collection.parts.values() for digest in each.digests()})
    found = kept(_key(model, order, device))
    if found is None:
        return None
    place = {digest: number for number, digest in enumerate(order)}
    features = torch.from_numpy(found["rows"][[place[digest] for digest in part.digests()]])
    with torch.inference_mode():
        return model.to("cpu").eval().embed(features).numpy()


def _key(model: Embedder, order: Sequence[str], device: torch.device) -> dict[str, str]:
    items = hashlib.blake2b("".join(order).encode(), digest_size=16).hexdigest()
    return {"what": "unit features", "backbone": backbone_digest(model), "items": items, "device": device.type}


def as_rows(collection: Collection, features: dict[str, Features]) -> Collection:
    """The same collection with features for its images: same parts, names, labels and groups."""

    def part_of(part: Part, rows: Features) -> Part:
        names = np.array([part.name(index) for index in range(len(part))])
        return part.replace(items=Rows(rows, names), positions=np.arange(len(part)))

    return Collection(collection.name, {name: part_of(part, features[name]) for name, part in collection.parts.items()})


def backbone_digest(model: Embedder) -> str:
    """All that decides what becomes of an image before the head."""
    assert model.preprocessing is not None
    made = {name: getattr(model.architecture, name) for name in ("backbone", "pooling", "size")}
    return f"{made} {asdict(model.preprocessing)} {state_digest(model.backbone.state_dict())} torch {torch.__version__}"
