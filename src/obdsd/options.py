"""The options of every command as frozen dataclasses: the command line is made of them. Imports no torch, so that --help is instant."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from obdsd.errors import InputError


@dataclass(frozen=True, kw_only=True)
class InfoOptions:
    """Options of `obdsd info`.

    Args:
        format: A table for people or JSON for programs and bug reports.
    """

    format: Literal["table", "json"] = "table"


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Options of `obdsd data`.

    Args:
        action: What to do; `check` reads every item and names what is wrong.
        data: The collection, NAME:PATH (cub200, cars196, sop, inshop, folder, manifest, embeddings), glyphs, or an embeddings file.
        split_seed: Splits the classes where the data give no split.
        test_fraction: Share of the classes that test where the data give no split.
        allow_incomplete: Accept a benchmark with missing classes or files.
    """

    action: Literal["check"] = field(kw_only=False)
    data: str = field(kw_only=False)
    split_seed: int = 0
    test_fraction: float = 0.5
    allow_incomplete: bool = False

    def __post_init__(self) -> None:
        _check_at_least(self, split_seed=0)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a model goes through a collection.

    Args:
        batch_size: Items at a time.
        workers: Processes that read items beside this one; default one a core, at most 8, for image files.
        device: Where the model runs, such as cpu or cuda:0; auto takes the accelerator if there is one.
        split_seed: Splits the classes where the data give no split; default that of the run, else 0.
        test_fraction: Share of the classes that test where the data give no split; default that of the run, else 0.5.
        allow_incomplete: Accept a benchmark with missing classes or files.
    """

    batch_size: int = 128
    workers: int | None = None
    device: str = "auto"
    split_seed: int | None = None
    test_fraction: float | None = None
    allow_incomplete: bool = False

    def __post_init__(self) -> None:
        _check_at_least(self, batch_size=1, workers=0, split_seed=0)


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(ModelOptions):
    """Options of `obdsd embed`.

    Args:
        model: A model folder, a run folder, or BACKBONE:WEIGHTS such as tf_efficientnet_lite0:offline or resnet50:weights.pth.
        data: The collection, as for `obdsd data`.
        out: The file to write, of suffix .parquet or .npz.
        part: Which items; all of them in the order of the data, or one part.
    """

    model: str = field(kw_only=False)
    data: str = field(kw_only=False)
    out: str
    part: Literal["all", "train", "val", "test", "query", "gallery"] = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_suffix(self.out, (".parquet", ".npz"))


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ModelOptions):
    """Options of `obdsd evaluate`.

    Args:
        model: A model folder, a run folder, BACKBONE:WEIGHTS such as tf_efficientnet_lite0:offline, or an embeddings file alone.
        data: The collection, as for `obdsd data`; left out for an embeddings file alone.
        ks: The depths of Recall@K, with commas between.
        seed: Of k-means.
        restarts: Starts of k-means, of which the best by its own objective counts.
        clusters: Whether to cluster for NMI and AMI, which takes long with thousands of classes.
        part: Which items; test stands for query and gallery where the data have these.
        out: A .json file for the scores, with the options and versions that made them.
        per_class: Adds the scores of each class to the JSON file.
    """

    model: str = field(kw_only=False)
    data: str | None = field(kw_only=False, default=None)
    ks: str = "1,2,4,8"
    seed: int = 0
    restarts: int = 1
    clusters: bool = True
    part: Literal["test", "train", "val"] = "test"
    out: str | None = None
    per_class: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_at_least(self, seed=0, restarts=1)
        if not all(word.strip().isdecimal() and int(word) for word in self.ks.split(",")):
            raise InputError(f"ks={self.ks!r} must be whole numbers above 0 with commas between; try 1,2,4,8")
        if self.out is not None:
            _check_suffix(self.out, (".json",))
        elif self.per_class:
            raise InputError("per_class=true needs a JSON file to go to; add --out scores.json")

    @property
    def depths(self) -> tuple[int, ...]:
        """`ks` as numbers."""
        return tuple(int(word) for word in self.ks.split(","))


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Options of `obdsd report`.

    Args:
        runs: Folders of finished runs, which are shown side by side, the first as the baseline; or the folder of a comparison.
        out: The page to write, of suffix .html.
        map: How the embedding map is drawn; umap needs pip install umap-learn.
        points: What is on the map, the scored classes or the first 20 training classes as in the paper.
        queries: A text file of item names, one a line, that the gallery shows first.
        pictures: The images that an embeddings file was made of, as a collection whose items have the same names, such as
            cub200:PATH or glyphs; default the data's own images, if they are images.
        seed: Of the map, of the crops that search, and of the classes left out where there are too many for a page.
        device: Where the models run, such as cpu or cuda:0; auto takes the accelerator if there is one.
    """

    runs: list[str] = field(kw_only=False)
    out: str = "report.html"
    map: Literal["tsne", "umap"] = "tsne"
    points: Literal["test", "train"] = "test"
    queries: str | None = None
    pictures: str | None = None
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        _check_suffix(self.out, (".html",))
        _check_at_least(self, seed=0)


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """What a backbone expects of an image: (pixel · range/255 - mean) / std on a centre crop; it travels with the weights.

    Args:
        size: Side of the square that the model sees.
        resize: Length of the shorter side before the centre crop.
        mean: Subtracted from each channel, in the units of `range`.
        std: Divides each channel, in the units of `range`.
        channels: Order of the channels.
        range: Pixels run from 0 to this before mean and std.
        interpolation: How images are resized.
    """

    size: int = 224
    resize: int = 256
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    channels: Literal["rgb", "bgr"] = "rgb"
    range: float = 1.0
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"


def _check_suffix(out: str, suffixes: tuple[str, ...]) -> None:
    if PurePath(out).suffix.lower() not in suffixes:
        raise InputError(f"out={out!r} must end in {' or '.join(suffixes)}; rename it")


def _check_at_least(options: object, **least: int) -> None:
    for name, bound in least.items():
        value = getattr(options, name)
        if value is not None and not bound <= value < 2**31:
            raise InputError(f"{name}={value} must be a whole number from {bound} to {2**31 - 1}; try {bound or 1}")
