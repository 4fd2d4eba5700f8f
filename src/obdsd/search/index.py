"""An index, opened: a model, the vectors of a collection, and where its items are."""

from __future__ import annotations

import difflib
import zipfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.data import Collection
from obdsd.errors import InputError
from obdsd.models import Embedder
from obdsd.search import changing, fitting
from obdsd.search.answers import Answer, Hit
from obdsd.search.folder import MODEL, Settings, Stored, alone, checked, read_consistently, read_settings, write_settings
from obdsd.search.queries import Query, queries_of, rows_of_queries
from obdsd.search.table import Item, read_items
from obdsd.search.vectors import Kind, read_vectors, rows_of, search
from obdsd.search.writing import Change, Content, Pass, silent

Rows = NDArray[np.float32]


class Index:
    """A collection that can be searched, in a folder that is all one needs.

    Attributes:
        path: The folder.
        settings: What its `index.json` says.
        items: Names, labels and files, in the order of the rows.
        change: What the last call that wrote here did.
    """

    def __init__(self, path: Path, settings: Settings, items: list[Item], vectors: Any) -> None:
        self.path, self.settings, self.items, self._vectors = path, settings, items, vectors
        self.change: Change | None = None
