"""Join a backbone and a head that was trained on its embeddings into one model for images: obdsd join BACKBONE HEAD --out model.

obdsd train --frozen does this by itself. Use join for a head that was trained on a file which obdsd embed wrote.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obdsd.cli.embed import BackboneOptions
from obdsd.errors import InputError
from obdsd.files import check_place
from obdsd.options import option

if TYPE_CHECKING:
    from obdsd.models import Embedder
    from obdsd.provenance import TrainedOn


@dataclass(frozen=True)
class Options(BackboneOptions):
    backbone: str = option(MISSING, "The model that made the embeddings, such as tf_efficientnet_lite0:offline.", positional=True)
    head: str = option(MISSING, "The run, or the model folder, of the head that was trained on them.", positional=True)
    out: str = option(MISSING, "The model folder to write.")
    data: str | None = option(None, "The images that the embeddings were made of, so that the model knows which of them it has seen.")


def run(options: Options) -> None:
    from obdsd.models import open_model

    out = Path(options.out).expanduser()
    check_place(out / "model.json")
    head = open_model(options.head)
    model = _joined(options, head)
    if model.trained_on is not None:
        if options.data is None:
            print("the model knows its training classes, but not their images; --data DATA tells it", file=sys.stderr)
        else:
            model.trained_on = _seen(options.data, model.trained_on)
    model.save(out)
    print(f"model: {out}, images to rows of length {model.dim:,}")


def _joined(options: Options, head: Embedder) -> Embedder:
    """Both as one. The backbone sees images as the head's embeddings were made: so by default, and anything else is refused."""
    from obdsd.models.places import located

    made_by = head.made_by or {}
    if located(options.backbone) is None:
        left: dict[str, Any] = {name: made_by.get(name) for name in ("size", "resize", "pooling") if getattr(options, name) is None}
        if options.size is not None:
            left.pop("resize", None)  # it follows the size
        options = replace(options, **left)
    model = options.opened(options.backbone).joined(head)
    for name, value in (model.how_it_sees() or {}).items():
        if made_by.get(name, value) != value:
            fault = f"{name}={value} is not the {made_by[name]} that the embeddings of head={options.head} were made with"
            raise InputError(f"{fault}; {'use that' if name == 'backbone' else 'leave it out'}")
    if not made_by:
        print("the head does not say how its embeddings were made; whether the backbone sees images so cannot be checked", file=sys.stderr)
    return model


def _seen(data: str, trained_on: TrainedOn) -> TrainedOn:
    """What the head was trained on, as images: those of its training classes."""
    from obdsd.data import open_data
    from obdsd.provenance import short_digest

    parts = open_data(data, seed=trained_on.split_seed, test_fraction=trained_on.test_fraction).parts.values()
    images = [(short_digest(name.encode()), item) for part in parts for name, item in zip(part.classes, part.digests(), strict=True)]
    items = {}
    for part, classes in trained_on.classes.items():
        known = {*classes.split()}
        items[part] = " ".join(item for name, item in images if name in known)
    if not items.get("train"):
        raise InputError(f"data={data} holds none of the classes that the head was trained on; give the images of its embeddings")
    return replace(trained_on, items=items)
