"""Write a model as an ONNX file, for programs without torch: obdsd export MODEL --out model.onnx.

The file takes batches of any size. It is compared with torch before it is written: each row, and the order of what each finds nearest. A
file whose rows are others is not written. DATA are the images, or the embeddings for a model that takes these, on which they are compared;
without DATA, built-in letters, or made-up rows.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from obdsd.cli.embed import MODEL, ReadingOptions, check_suffix, open_both
from obdsd.errors import InputError
from obdsd.files import check_place, replacing
from obdsd.options import OPENING, option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from obdsd.data import Part
    from obdsd.models import Embedder


@dataclass(frozen=True)
class Options(ReadingOptions):
    model: str = option(MISSING, MODEL, positional=True)
    data: str | None = option(None, "What to compare on: NAME:PATH, glyphs, or an embeddings file.", positional=True)
    out: str = option(MISSING, "The file to write, of suffix .onnx.")
    with_preprocessing: bool = option(
        False, "Take uint8 pixels, (batch, height, width, 3) in RGB, of the crop; the file then makes of them what the backbone expects."
    )
    items: int = option(256, "How many items are compared, spread evenly over DATA.", at_least=1)
    part: Literal["all", "train", "val", "test", "query", "gallery"] = option("all", "Which items of DATA: all, or one part.")

    def __post_init__(self) -> None:
        check_suffix(self.out, (".onnx",))
        if self.data is None:
            for name in ("part", "cache", *OPENING):
                if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                    raise InputError(f"{name}={getattr(self, name)} is for DATA, which is not given; give it, or leave {name} out")


def run(options: Options) -> None:
    out = Path(options.out).expanduser()
    check_place(out)
    from obdsd.data.transforms import ToNumbers
    from obdsd.models.agreement import agreement
    from obdsd.models.export import exported, takes_of
    from obdsd.models.inference import for_inference
    from obdsd.models.onnx_engine import OnnxModel
    from obdsd.terminal import stages

    embedder, items, where = _opened(options)
    takes = takes_of(embedder, options.with_preprocessing)
    with stages() as progress:
        progress("exporting the model", 0, 1)
        numbers = ToNumbers(embedder.preprocessing) if takes == "pixels" and embedder.preprocessing else None
        content = exported(embedder, numbers)
        progress("exporting the model", 1, 1)
    truth = _rows("by torch", for_inference(embedder), _seen(items, embedder), options)
    rows = _rows("by onnxruntime", OnnxModel(content, options.out), _seen(items, embedder, takes == "pixels"), options)
    found = agreement(truth, rows)
    found.check(options.out)
    with replacing(out) as file:
        file.write(content)
    print(f"compared on {where}: {found}")
    print(f"{out}: {len(content) / 1e6:.1f} MB, from {_shape(embedder, takes)} to unit rows of length {embedder.dim:,}")


def _opened(options: Options) -> tuple[Embedder, Part, str]:
    """The model, the items to compare on, and what they are."""
    import numpy as np

    from obdsd.data import collect, open_data
    from obdsd.data.items import Rows

    if options.data is not None:
        embedder, collection = open_both(options.model, options.data, options)
        name = options.data if options.part == "all" else f"the {options.part} part of {options.data}"
        collection = collection if options.part == "all" else replace(collection, parts={options.part: collection[options.part]})
        whole, _ = collection.joined()
    else:
        embedder = options.opened(options.model)
        if embedder.preprocessing is not None:
            name, whole = "built-in letters", open_data("glyphs")["test"]
        else:
            matrix = np.random.default_rng(0).standard_normal((options.items, embedder.feature_dim), dtype=np.float32)
            name, whole = "made-up rows", collect("made-up rows", Rows(matrix), ["made up"] * len(matrix), ["test"] * len(matrix))["test"]
    count = min(options.items, len(whole))
    spread = np.linspace(0, len(whole) - 1, count).astype(np.int64)
    return embedder, whole.take(spread), f"{count:,} of {len(whole):,} items of {name}"


def _seen(items: Part, embedder: Embedder, as_pixels: bool = False) -> Part:
    """The items as the model sees them, or as the pixels from which a file does."""
    from functools import partial

    from obdsd.data.decoded import at_a_test
    from obdsd.data.transforms import CentreCrop

    if embedder.preprocessing is None:
        return items
    part = at_a_test(items, embedder.preprocessing)
    return part.replace(transform=partial(_held, CentreCrop(embedder.preprocessing))) if as_pixels else part


def _held(crop: Any, image: Any) -> Any:
    """The crop as images hold it: (height, width, 3)."""
    return crop(image).permute(1, 2, 0)


def _rows(how: str, model: nn.Module, items: Part, options: Options) -> NDArray[np.float32]:
    from obdsd.data.collection import loader_workers
    from obdsd.evaluation.embedding import embed
    from obdsd.terminal import bar

    with bar(how, len(items)) as advance:
        return embed(model, items, batch_size=options.batch_size, workers=loader_workers(options.workers, items), advance=advance)


def _shape(embedder: Embedder, takes: str) -> str:
    if embedder.preprocessing is None:
        return f"rows (batch, {embedder.feature_dim})"
    side = embedder.preprocessing.size
    return f"uint8 pixels (batch, {side}, {side}, 3)" if takes == "pixels" else f"numbers (batch, 3, {side}, {side})"
