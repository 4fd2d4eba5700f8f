"""An image that a client sends: looked at before it is decoded."""

from __future__ import annotations

import io
from typing import IO

from fastapi import HTTPException
from PIL import Image, UnidentifiedImageError

from obdsd.data.items import upright_rgb

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")  # of those that a collection may hold; others would start programs
NAMES = "JPEG, PNG, WebP, GIF, BMP or TIFF"


def read_upload(name: str, file: IO[bytes], max_pixels: int) -> Image.Image:
    """The image in a file, as every image of a collection is read. What is none, or too large, is refused for the client."""
    content = io.BytesIO(file.read())
    if not content.getbuffer().nbytes:
        raise HTTPException(422, f"{name}: is empty; send an image")
    try:
        with Image.open(content, formats=FORMATS) as image:
            pixels, size = image.width * image.height, f"{image.width:,} x {image.height:,}"
            if pixels <= max_pixels:
                return upright_rgb(image)
    except UnidentifiedImageError as foreign:
        raise HTTPException(422, f"{name}: is no image that can be read; send {NAMES}") from foreign
    except Image.DecompressionBombError as bomb:
        raise HTTPException(413, f"{name}: has far more pixels than the {max_pixels:,} that are read; send a smaller one") from bomb
    except Exception as damage:  # a damaged image makes Pillow raise a dozen kinds of error
        reason = " ".join(str(damage).split())[:80]
        raise HTTPException(422, f"{name}: cannot be read as an image ({reason}); send another one") from damage
    raise HTTPException(413, f"{name}: has {size} pixels, more than the {max_pixels:,} that are read; send a smaller one")
