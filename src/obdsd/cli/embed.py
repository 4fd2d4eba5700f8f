"""Write the embeddings of a collection to a file: obdsd embed MODEL DATA --out x.parquet."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

from obdsd.errors import InputError, printable
from obdsd.files import check_place, read_mapping
from obdsd.options import LARGEST, OpeningOptions, opening, option

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from obdsd.data import Collection, Part, Photos
    from obdsd.models import Embedder
    from obdsd.provenance import TrainedOn

MODEL = "A model folder, a run folder, or BACKBONE:WEIGHTS such as tf_efficientnet_lite0:offline or resnet50:weights.pth."


@dataclass(frozen=True, kw_only=True)
class BackboneOptions:
    """How BACKBONE:WEIGHTS sees images."""

    size: int | None = option(
        None, "Side of the images that BACKBONE:WEIGHTS sees, if not the backbone's own; a trained model has its own.", at_least=1
    )
    resize: int | None = option(
        None, "Their shorter side before the centre crop, for BACKBONE:WEIGHTS; default in proportion to the size.", at_least=1
    )
    pooling: Literal["avg", "avg+max", "gem", "token"] | None = option(
        None, "How local features become one row, for BACKBONE:WEIGHTS; default avg."
    )

    def opened(self, model: str) -> Embedder:
        """The model that a command names, as these options say."""
        from obdsd.models import open_model

        return open_model(model, size=self.size, pooling=self.pooling, resize=self.resize)


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(OpeningOptions, BackboneOptions):
    """How a model gets a collection."""

    batch_size: int = option(64, "Items at a time.", at_least=1)
    workers: int | None = option(None, "Processes that read items; default one a core, at most 8, for image files.", at_least=0)
    cache: str | None = option(None, "A folder for decoded images: they are decoded once, for all commands that take them at this size.")


@dataclass(frozen=True, kw_only=True)
class PassOptions(ReadingOptions):
    """How a model goes through a collection."""

    device: str = option("auto", "Where the model runs, such as cpu or cuda:0; auto takes the accelerator if there is one.")


@dataclass(frozen=True, kw_only=True)
class ModelOptions(PassOptions):
    """The same for parts of it."""

    split_seed: int | None = option(
        None, "Seed of the split by class, where the data give none; default that of the run, else 0.", at_least=0, below=LARGEST
    )
    test_fraction: float | None = option(
        None, "Share of the classes that are test classes where the data give no split; default that of the run, else 0.5."
    )


@dataclass(frozen=True)
class Options(ModelOptions):
    model: str = option(MISSING, MODEL, positional=True)
    data: str = option(MISSING, "The collection: NAME:PATH, glyphs, or an embeddings file.", positional=True)
    out: str = option(MISSING, "The file to write, of suffix .parquet or .npz.")
    part: Literal["all", "train", "val", "test", "query", "gallery"] = option(
        "all", "Which items: all of them in the order of the data, or one part."
    )

    def __post_init__(self) -> None:
        check_suffix(self.out, (".parquet", ".npz"))


def run(options: Options) -> None:
    import numpy as np

    from obdsd.data.embeddings import Vectors, write_vectors

    out = Path(options.out).expanduser()
    check_place(out)
    embedder, whole = open_both(options.model, options.data, options)
    tell_remarks(whole)
    collection = whole if options.part == "all" else replace(whole, parts={options.part: whole[options.part]})
    if scored := {name: part for name, part in collection.parts.items() if name not in ("train", "val")}:
        tell_seen(options.model, embedder.trained_on, scored)
    items, splits = collection.joined()
    start = time.monotonic()
    matrix = embed_part(embedder, items, whole, options)
    speed = len(items) / (time.monotonic() - start)
    names = np.array([items.name(index) for index in range(len(items))])
    has_split = len(collection.parts) > 1 or not items.unlabelled  # items without labels are in one part, unless the data say otherwise
    labels = None if items.unlabelled else items.classes
    vectors = Vectors(matrix, labels, splits if has_split else None, items.groups, names, _photos(collection, options))
    write_vectors(out, vectors._replace(trained_on=embedder.trained_on, made_by=embedder.how_it_sees()))
    print(f"{out}: {matrix.shape[0]:,} rows of length {matrix.shape[1]:,}, {speed:,.0f} {collection.kind}/s")


def _photos(collection: Collection, options: Options) -> Photos | None:
    """Where the images of the rows are: the data, or what these were made of if that is known."""
    from obdsd.data import Photos, absolute_source

    root = None if options.root is None else str(Path(options.root).expanduser().absolute())
    return collection.photos if collection.kind == "embeddings" else Photos(absolute_source(options.data), root)


def open_both(model: str, data: str, options: ReadingOptions, beside: bool = False) -> tuple[Embedder, Collection]:
    """The model and the collection, which must go together; perhaps with the images beside its class folders."""
    from obdsd.data import open_data
    from obdsd.terminal import stages

    check_both(model, data)
    embedder = options.opened(model)  # seconds of imports: what is wrong is told before
    from obdsd.models.embedder import check_takes

    split = _split_of(model, embedder, options)
    with stages() as progress:
        how = {"seed": split["split_seed"], "test_fraction": split["test_fraction"], "beside": beside, **opening(options)}
        collection = open_data(data, **how, progress=progress)
    tell_left_out(collection)
    check_takes(model, embedder, data, collection.kind, collection.length)
    return embedder, collection if options.cache is None else _decoded(embedder, collection, Path(options.cache))


def check_both(model: str, data: str) -> None:
    """Refuse a model or data that are not there. It imports next to nothing."""
    from obdsd.data import check_there
    from obdsd.models.places import find, located

    if find(Path(data).expanduser()) is not None:
        raise InputError(f"data={data!r} is a model; the model comes first, then the data")
    check_there(data)
    located(model)


def _decoded(embedder: Embedder, collection: Collection, cache: Path) -> Collection:
    """The collection with its images from a cache, as many pixels of each as the model takes."""
    from obdsd.data.decoded import decoded
    from obdsd.data.unusable import check_readable
    from obdsd.terminal import stages

    if embedder.preprocessing is None:
        raise InputError(f"cache={cache} is for images, {collection.name} holds embeddings; leave it out")
    with stages() as progress:
        try:
            kept, line = decoded(collection, cache, embedder.preprocessing.resize, embedder.preprocessing.interpolation, progress)
        except InputError:
            check_readable(collection, progress)  # one image cannot be read: name all that cannot
            raise
    print(f"obdsd: {line}", file=sys.stderr)
    return kept


def tell_left_out(collection: Collection) -> None:
    """Say on standard error what could not be used."""
    from obdsd.data.unusable import left_out_lines

    for line in left_out_lines(collection):
        tell_remark(line)


def tell_remarks(collection: Collection) -> None:
    """The same of what is there and no item."""
    for remark in collection.remarks:
        tell_remark(f"{collection.name}: {remark}")


def tell_remark(line: str) -> None:
    print(f"obdsd: {printable(line)}", file=sys.stderr)


def tell_seen(model: str, trained_on: TrainedOn | None, parts: Mapping[str, Part]) -> None:
    """Refuse items that trained the model; what else its scores may owe to its training is told on standard error."""
    from obdsd.data.check import check_unseen

    for remark in check_unseen(model, trained_on, parts):
        print(f"obdsd: {remark}", file=sys.stderr)


def _split_of(model: str, embedder: Embedder, options: ReadingOptions) -> dict[str, Any]:
    """How classes are split: as asked, and as in the model's training, since its training classes must not be taken for test."""
    folder = Path(model).expanduser()
    places = [folder, folder.resolve().parent] if (folder / "model.json").is_file() else [folder]  # of an older version: it lies in its run
    run = next((read_mapping(place / "config.yaml") for place in places if (place / "config.yaml").is_file()), {})
    trained = run if embedder.trained_on is None else vars(embedder.trained_on)
    split = {}
    for name, usual in (("split_seed", 0), ("test_fraction", 0.5)):
        asked, own = getattr(options, name, None), trained.get(name)
        if own is not None and asked is not None and asked != own:
            raise InputError(f"{name}={asked} is not the {own} that model={model} was trained with; leave it out")
        split[name] = own if own is not None else usual if asked is None else asked
    return split


def embed_part(embedder: Embedder, part: Part, collection: Collection, options: PassOptions) -> NDArray[np.float32]:
    """The rows of a part's items, in their order, prepared as the model expects them. All images that cannot be read are named at once."""
    from obdsd.data.collection import loader_workers
    from obdsd.data.decoded import at_a_test
    from obdsd.data.unusable import check_readable
    from obdsd.evaluation.embedding import embed
    from obdsd.models.devices import choose_device
    from obdsd.models.inference import for_inference
    from obdsd.terminal import bar, stages

    device = choose_device(options.device)
    if (rows := computed_before(embedder, collection, part, device)) is not None:
        return rows
    unit = "embeddings"
    if embedder.preprocessing is not None:
        unit, part = "images", at_a_test(part, embedder.preprocessing)
    workers = loader_workers(options.workers, part)
    try:
        with bar("embedding", len(part), unit) as advance:
            fast = for_inference(embedder.to(device))
            return embed(fast, part, batch_size=options.batch_size, workers=workers, device=device, advance=advance)
    except InputError:
        with stages() as progress:  # one image cannot be read: name all that cannot
            check_readable(collection, progress)
        raise


def computed_before(embedder: Embedder, collection: Collection, part: Part, device: torch.device) -> NDArray[np.float32] | None:
    """The rows of a part, if the features of the collection are still in the cache; this is then told."""
    from obdsd.training.features import known_rows

    rows = known_rows(embedder, collection, part, device)
    if rows is not None:
        asked = "" if embedder.architecture.head == "none" else "; only the head is asked"
        print(f"obdsd: the features of these images were computed before and are kept{asked}", file=sys.stderr)
    return rows


def check_suffix(out: str, suffixes: tuple[str, ...]) -> None:
    if PurePath(out).suffix.lower() not in suffixes:
        raise InputError(f"out={out!r} must end in {' or '.join(suffixes)}; rename it")
