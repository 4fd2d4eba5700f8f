"""Small pictures of an index's items."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path

from fastapi import HTTPException
from PIL import Image

from obdsd.data.items import Box, read_image
from obdsd.errors import InputError
from obdsd.search import Index

SIDE, QUALITY = 320, 80  # pixels of the longer side; of WebP
KEPT = 1_000  # pictures in memory: about 15 MB


def picture_of(index: Index, place: int) -> bytes:
    """A picture of an item as WebP. One that cannot be shown is refused for the client, without its path on this machine."""
    item, file = index.items[place], index.file(place)
    if file is None:
        raise HTTPException(404, f"{item.name}: is no image file, it has no picture")
    try:
        about = file.stat()
        return _picture(file, item.box, about.st_mtime_ns, about.st_size)
    except (OSError, InputError) as fault:
        moved = f"if the photos moved: obdsd index {index.path.name} --refresh DATA"
        raise HTTPException(404, f"{item.name}: its file is not there any more, or cannot be read; {moved}") from fault


@lru_cache(KEPT)
def _picture(file: Path, box: Box | None, modified: int, size: int) -> bytes:
    """Made once for each state of a file. A JPEG is not decoded larger than needed, unless a box of it is meant."""
    image = read_image(file, SIDE) if box is None else read_image(file).crop(box)
    image.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC, reducing_gap=2.0)
    content = io.BytesIO()
    image.save(content, "WEBP", quality=QUALITY)
    return content.getvalue()
