"""The training settings that fit a data set, written beside what reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Load = TypeVar("Load", bound=Callable[..., Any])


def training_defaults(**settings: Any) -> Callable[[Load], Load]:
    """Give a data set the training settings that fit it. A preset takes them where the user gives none.

    >>> @training_defaults(epochs=20)
    ... def mine(path): ...
    >>> mine.training_defaults
    {'epochs': 20}
    """

    def mark(load: Load) -> Load:
        load.training_defaults = settings  # type: ignore[attr-defined]
        return load

    return mark
