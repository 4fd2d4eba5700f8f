"""What is meant by a name that there is not, and whose names there are. Imports no torch."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Sequence

from obdsd.errors import InputError
from obdsd.search.folder import Source
from obdsd.search.table import Item

SHOWN = 20  # labels in a message


def nearest_name(word: str, names: Iterable[str]) -> str | None:
    """The name that is most like a word. The last part counts first: owl.png means birds/OWL.PNG, not food/nuts/walnut.png.

    >>> nearest_name("owl.png", ["food/nuts/bowl.jpg", "animals/birds/OWL.PNG"])
    'animals/birds/OWL.PNG'
    """
    by_last = defaultdict[str, list[str]](list)
    for name in names:
        by_last[_last(name)].append(name)
    last = _last(word)
    near = [last] if last in by_last else difflib.get_close_matches(last, by_last, n=1, cutoff=0.7)
    alike = by_last[near[0]] if near else [name for own in by_last.values() for name in own]
    return next(iter(difflib.get_close_matches(word, alike, n=1, cutoff=0.0 if near else 0.5)), None)


def nearest_first(word: str, names: Iterable[str]) -> list[str]:
    """The names that are most like a word, at most `SHOWN`."""
    return sorted(names, key=lambda name: -difflib.SequenceMatcher(None, word, name).ratio())[:SHOWN]


def sources_named(names: Sequence[str], items: Sequence[Item], sources: Sequence[Source]) -> dict[str, int]:
    """The source of each name, which must be one of an item, or of one that was removed before."""
    known = {name: number for number, source in enumerate(sources) for name in source.removed}
    known |= {item.name: item.source for item in items}
    for name in names:
        if name not in known:
            near = nearest_name(name, known)
            remedy = f"did you mean {near}?" if near else f"names are such as {items[0].name}"
            raise InputError(f"{name!r} is no item of the index; {remedy}; nothing was removed")
    return {name: known[name] for name in names}


def alikeness(word: str, name: str) -> float:
    """How much the last parts of two names are alike, from 0 to 1."""
    return difflib.SequenceMatcher(None, _last(word), _last(name)).ratio()


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()
