"""In-Shop Clothes Retrieval."""

from __future__ import annotations

from pathlib import Path

from obdsd.data.benchmarks import Count, benchmark, home, read_list, unknown_layout
from obdsd.data.collection import Collection, training_defaults
from obdsd.data.folders import Classes
from obdsd.errors import InputError

COUNTS = {"train": Count(3997, 25882), "query": Count(3985, 14218), "gallery": Count(3985, 12612)}
LIST = "list_eval_partition.txt"


# the settings of SOP, as the paper has none
@training_defaults(epochs=100, weight=100.0, omega=0.5, walk_temperature=0.005, heads_pooling="avg", feature_weight=5.0, ks="1,10,20,30")
def inshop(path: Path, allow_incomplete: bool = False) -> Collection:
    """In-Shop Clothes Retrieval: parts train, query and gallery by `list_eval_partition.txt`.

    The list lies in the folder, its `Eval/` or its `Anno/`, the images in `img/` or `Img/img/`.
    """
    base = home(path, "In-shop Clothes Retrieval Benchmark")
    lists = [place / LIST for place in (base, base / "Eval", base / "Anno") if (place / LIST).is_file()]
    if not lists:
        raise unknown_layout("inshop", base, f"{LIST}, also in Eval/ and Anno/")
    parts: dict[str, Classes] = {"train": {}, "query": {}, "gallery": {}}
    for image, label, status in read_list(lists[0], "image_name item_id evaluation_status", skip=2):
        if status not in parts:
            raise InputError(f"{lists[0]}: evaluation_status {status!r} of {image} must be train, query or gallery; mend the list")
        parts[status].setdefault(label, []).append(image)
    images = base if (base / "img").is_dir() else base / "Img"
    return benchmark("inshop", images, parts, COUNTS, allow_incomplete=allow_incomplete)
