"""Rows of a comparison that cannot be trained on the data at hand: what a training would refuse, asked before any begins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from obdsd.errors import InputError
from obdsd.experiments.runs import tell
from obdsd.experiments.search import FOLDS, SEARCH_SEED, on_fold
from obdsd.experiments.tuning import SEARCH, candidates
from obdsd.options import TrainOptions
from obdsd.training import Trainer
from obdsd.training.build import check_sources, collection_of
from obdsd.training.run_folder import RunFolder


class _NothingToRefuse(Exception):
    """A training was made up to where it reads images or features."""


def left_out(
    rows: Mapping[str, TrainOptions],
    optional: Collection[str],
    out: Path,
    known: Mapping[str, str] = MappingProxyType({}),
    *,
    tune: bool = False,
    show: bool = True,
) -> dict[str, str]:
    """Of the rows that are optional those that cannot be trained, with the reason, beside those that are known. A row that was begun in
    `out` can be."""
    found = dict(known)
    for name, reason in known.items():
        tell(show, f"row {name} is left out: {reason}")
    for name in (name for name in rows if name in optional and not any((out / there / name).exists() for there in ("", SEARCH))):
        options = rows[name].replace(data=_source(out, rows[name].data))
        asked = [options]
        if tune:
            asked.append(on_fold(next(iter(candidates({name: options})[name].values())), FOLDS[0], SEARCH_SEED))
        if why := refusal(asked):
            found[name] = why
            tell(show, f"row {name} is left out: {why}")
    if (first := next(iter(rows))) in found:
        raise InputError(f"row {first}: {found[first]}; all others are compared with it")
    return found


def refusal(trainings: Iterable[TrainOptions]) -> str | None:
    """Why one of these trainings cannot be; None if all can."""
    for options in trainings:
        collection = collection_of(options)
        try:
            check_sources(options)
            Trainer(options, collection, announce=_stop)
        except InputError as fault:
            return str(fault)
        except _NothingToRefuse:
            continue
    return None


def _stop() -> None:
    raise _NothingToRefuse


def _source(out: Path, data: str) -> str:
    """Where the data are, for a comparison that goes on in another folder."""
    begun = next(out.rglob("config.yaml"), None)
    return data if begun is None else RunFolder(begun.parent, writes=False).source(data)
