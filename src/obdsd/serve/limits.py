"""How much a client may ask for."""

from __future__ import annotations

from dataclasses import dataclass

MOST_FOUND = 100  # items in an answer
LARGEST_IMAGE = 89_000_000  # pixels: beyond, Pillow warns of images that are made to fill the memory


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much a client may ask for.

    Args:
        max_bytes: Length of a request's body.
        max_pixels: Of an image, whatever its length in bytes.
        max_waiting: Searches that may be under way at once.
        seconds: Time in which the whole body of a request must have arrived.
    """

    max_bytes: int = 20_000_000
    max_pixels: int = 50_000_000
    max_waiting: int = 64
    seconds: float = 30.0
