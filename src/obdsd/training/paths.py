"""Paths among the options of a run: they mean the same from any working directory, also when the run goes on from another one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from obdsd.catalogue import TEACHERS
from obdsd.spec import Spec

if TYPE_CHECKING:
    from obdsd.options import TrainOptions

OPTIONS = ("init", "pretrained")  # options that may be paths; `data` is kept as it was typed, with its absolute path beside it
SETTINGS = ("source", "file")  # such settings of a teacher
WORDS = ("none", "imagenet", "offline")  # values that are never paths


def from_anywhere(options: TrainOptions) -> TrainOptions:
    """The options with absolute paths to all that lies on the disk."""
    return _changed(options, {}, lambda path, _: _absolute(path))


def with_paths_of(options: TrainOptions, begun: TrainOptions | None) -> TrainOptions:
    """A relative path that the run began with means what it meant there, unless there is something of that name here."""
    return options if begun is None else _changed(options, _named(begun), _as_before)


def _named(options: TrainOptions) -> dict[str, str]:
    """What the options name that may be a path, by option or setting."""
    teacher = TEACHERS.named(options.teacher)
    named = {**{name: getattr(options, name) for name in OPTIONS}, **{name: teacher.get(name) for name in SETTINGS}}
    return {name: str(path) for name, path in named.items() if path is not None and path not in WORDS}


def _changed(options: TrainOptions, begun: Mapping[str, str], change: Callable[[str, str], str]) -> TrainOptions:
    """The options with the path that `change` makes of each and of what stood there when the run began."""
    paths = {name: change(path, begun.get(name, path)) for name, path in _named(options).items()}
    settings = {**TEACHERS.named(options.teacher), **{name: paths.pop(name) for name in SETTINGS if name in paths}}
    return options.replace(**paths, teacher=Spec(options.teacher.name, settings))


def _absolute(path: str) -> str:
    place = os.path.abspath(os.path.expanduser(path))
    return place if os.path.exists(place) else path


def _as_before(path: str, begun: str) -> str:
    here = _absolute(path)
    gone = here == path and begun.endswith(os.sep + os.path.normpath(path))
    return begun if gone or here == begun else path
