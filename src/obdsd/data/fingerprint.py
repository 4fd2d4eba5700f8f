"""Are these still the data that a run began with?"""

from __future__ import annotations

import hashlib

from obdsd.data.collection import Part


def fingerprint(part: Part) -> str:
    """A hash of the part's names, labels and contents (of image files: their sizes, so that it takes no long reading)."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update("\0".join(part.class_names).encode())
    digest.update(part.labels.tobytes())
    digest.update("\0".join(part.name(index) for index in range(len(part))).encode())
    digest.update(part.items.stamp(part.positions))
    return digest.hexdigest()
