"""Find out from which similarity on something in an index fits: obdsd calibrate photos.index DATA.

DATA are photos with labels, of classes that the model was not trained on. Each of them searches the index and the other photos. The
threshold is the similarity at which a share of them, the false-match rate, has a best answer of another class. It is kept in the index, and
obdsd search then answers "nothing alike" below it. Measured again, new thresholds take the place of the old ones; --forget removes them.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from obdsd.cli.embed import ModelOptions, embed_part, open_both, tell_seen
from obdsd.errors import InputError, printable
from obdsd.options import LARGEST, OPENING, option

if TYPE_CHECKING:
    from obdsd.data import Part
    from obdsd.evaluation import Points
    from obdsd.models import Embedder
    from obdsd.search import Index
    from obdsd.search.calibration import Calibration


def _of_the_model() -> Any:
    """What is no option here, as the model of the index has its own."""
    return field(default=None, kw_only=True, metadata={"positional": False, "group": "options"})


@dataclass(frozen=True)
class Options(ModelOptions):
    index: str = option(MISSING, "An index that obdsd index wrote.", positional=True)
    data: str | None = option(
        None, "Labelled photos: NAME:PATH, glyphs, or an embeddings file for a model that takes one.", positional=True
    )
    size: int | None = _of_the_model()
    resize: int | None = _of_the_model()
    pooling: Literal["avg", "avg+max", "gem", "token"] | None = _of_the_model()
    rates: tuple[float, ...] = option(
        (), "False-match rates; default 0.01,0.001, as far as there are items enough to show them.", above=0, below=1
    )
    part: Literal["test", "val"] = option("test", "Which items; test stands for query and gallery where the data have these.")
    seed: int = option(0, "Seed of the bootstrap over classes.", at_least=0, below=LARGEST)
    forget: bool = option(False, "Remove the thresholds that are kept in the index: a search then finds all again.")

    def __post_init__(self) -> None:
        if self.data is None and not self.forget:
            raise InputError("DATA must be given: obdsd calibrate INDEX DATA [options]")
        if self.data is not None and self.forget:
            raise InputError(f"--forget measures nothing; leave out {self.data}")


def run(options: Options) -> None:
    from obdsd.data import check_there

    if options.data is not None:
        check_there(options.data)
    from obdsd.search import Index

    index = Index.open(options.index)
    if options.data is None:
        index.set_thresholds({})
        print(f"{index.path}: no threshold is kept; a search finds all")
    else:
        _measure(index, options.data, options)


def _measure(index: Index, data: str, options: Options) -> None:
    from obdsd.data.check import check_scorable
    from obdsd.search.folder import MODEL

    model, options = str(index.path / MODEL), _as_in_index(index, data, options)
    if options.test_fraction is None and _is_untrained(index.embedder):  # a model that is damaged is told here
        options = replace(options, test_fraction=1.0)
    embedder, collection = open_both(model, data, options)
    chosen = check_scorable(data, collection.parts, options.part)
    tell_seen(model, embedder.trained_on, chosen)
    rates = _rates(options.rates, sum(map(len, chosen.values())))
    import numpy as np

    from obdsd.search.calibration import calibrate
    from obdsd.terminal import stages

    rows = np.concatenate([embed_part(embedder, part, collection, options) for part in chosen.values()])
    labels = np.concatenate([part.classes for part in chosen.values()])
    groups = [part.groups for part in chosen.values() if part.groups is not None]
    with stages() as progress:
        found = calibrate(
            rows,
            labels,
            rates,
            groups=np.concatenate(groups) if len(groups) == len(chosen) else None,
            collection=_labelled(index),
            seed=options.seed,
            progress=progress,
        )
    about = {"data": data, "queries": found.queries, "classes": found.classes, "searched": found.searched}
    index.set_thresholds({each.rate: asdict(each) | about for each in found.thresholds})
    print(*map(printable, [*_asked(data, found, collection.parts, chosen), *_lines(options.index, found)]), sep="\n")


def _as_in_index(index: Index, data: str, options: Options) -> Options:
    """The options, where none was given as the index opens the same data."""
    from obdsd.data import absolute_source

    same = next((source for source in index.settings.sources if source.data == absolute_source(data)), None)
    if same is None:
        return options
    usual = {each: type(options).__dataclass_fields__[each].default for each in OPENING}
    known = {**same.opening, "root": same.root}
    return replace(options, **{name: known[name] for name in OPENING if name in known and getattr(options, name) == usual[name]})


def _is_untrained(embedder: Embedder) -> bool:
    """Whether it is a backbone with published weights: all classes are new to it."""
    return embedder.trained_on is None and embedder.architecture.head == "none"


def _rates(asked: tuple[float, ...], items: int) -> tuple[float, ...]:
    """Those asked for, or the usual ones that so many items can show."""
    from obdsd.search.calibration import RATES, check_rates, items_needed

    rates = asked or tuple(rate for rate in RATES if items >= items_needed(rate)) or RATES[:1]
    check_rates(rates, items)
    return rates


def _labelled(index: Index) -> Points | None:
    """The items of the index that have a label: of others nobody knows whether a match is false."""
    import numpy as np

    from obdsd.evaluation import Points

    places = [place for place, item in enumerate(index.items) if item.label is not None]
    if len(places) < len(index.items):
        without = f"{len(index.items) - len(places):,} of {len(index.items):,} items of the index have no label and are not searched"
        print(f"obdsd: {index.path}: {without}; false matches are more frequent in a larger collection", file=sys.stderr)
    return Points(index.rows[places], np.array([index.items[place].label for place in places])) if places else None


def _asked(data: str, found: Calibration, parts: Mapping[str, Part], chosen: Mapping[str, Part]) -> list[str]:
    """Who searched what, and who did not."""
    asked = f"{found.queries:,} items of {found.classes:,} classes, each searches {found.searched:,} others"
    alone, own = found.queries - found.with_own, {name for part in chosen.values() for name in part.class_names}
    lines = [f"{data}: {asked}"]
    lines += [f"{alone:,} of them have no other item of their class to miss"] if alone else []
    others = {name for part in parts.values() for name in part.class_names} - own
    lines += [f"the other {len(others):,} classes are not in {' and '.join(chosen)}, and do not search"] if others else []
    return lines


def _lines(index: str, found: Calibration) -> list[str]:
    lines = [f"{'false-match rate':<18}{'similarity':>10}  {'95 % interval':<18}{'misses (FNMR)':>13}  95 % interval"]
    for each in found.thresholds:
        low, high = each.similarity_interval
        fewest, most = (100 * share for share in each.misses_interval)
        rate, misses = f"{100 * each.rate:g} %", f"{100 * each.misses:.1f} %"
        lines.append(f"{rate:<18}{each.similarity:>10.3f}  {f'{low:.3f} to {high:.3f}':<18}{misses:>13}  {fewest:.1f} to {most:.1f}")
    for each in found.thresholds:
        if each.pair_similarity is not None and each.pair_misses is not None:
            rate, misses = f"{100 * each.rate:g} %", f"{100 * each.pair_misses:.1f} %"
            lines.append(f"single pairs, FMR {rate}: similarity {each.pair_similarity:.3f}, FNMR {misses}")
    first, *stricter = found.thresholds
    if first.misses > 0.5:
        similarity, false_matches = found.half
        half = f"at {similarity:.3f} half of the items find their class, with a false-match rate of {100 * false_matches:.0f} %"
        lines.append(f"most items miss their class: {half}; ask for a larger rate (--rates), or train a better model")
        lines.append(f'so most searches will say "nothing alike"; to go back: obdsd calibrate {shlex.quote(index)} --forget')
    other = "".join(f"; --false-match-rate {each.rate:g} takes {each.similarity:.3f}" for each in stricter)
    kept = f'kept: obdsd search {index} answers "nothing alike" below {first.similarity:.3f} (--threshold -1 finds all){other}'
    return [*lines, kept]
