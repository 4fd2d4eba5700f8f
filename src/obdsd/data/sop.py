"""Stanford Online Products."""

from __future__ import annotations

from pathlib import Path

from obdsd.data.benchmarks import Count, benchmark, home, read_list, unknown_layout
from obdsd.data.collection import Collection, training_defaults
from obdsd.data.folders import Classes

COUNTS = {"train": Count(11318, 59551), "test": Count(11316, 60502)}


@training_defaults(epochs=100, weight=100.0, omega=0.5, walk_temperature=0.005, heads_pooling="avg", feature_weight=5.0, ks="1,10,100")
def sop(path: Path, allow_incomplete: bool = False) -> Collection:
    """Stanford Online Products, split by `Ebay_train.txt` and `Ebay_test.txt`.

    The lists lie in the folder or its `Info_Files/`. The folder may hold all this in `Stanford_Online_Products/`.
    """
    base = home(path, "Stanford_Online_Products")
    parts: dict[str, Classes] = {"train": {}, "test": {}}
    folder = next((place for place in (base, base / "Info_Files") if all((place / _list(part)).is_file() for part in parts)), None)
    if folder is None:
        raise unknown_layout("sop", base, "Ebay_train.txt and Ebay_test.txt, also in Info_Files/")
    for part, classes in parts.items():
        for _, label, _, image in read_list(folder / _list(part), "image_id class_id super_class_id path", skip=1):
            classes.setdefault(label, []).append(image)
    return benchmark("sop", base, parts, COUNTS, allow_incomplete=allow_incomplete)


def _list(part: str) -> str:
    return f"Ebay_{part}.txt"
