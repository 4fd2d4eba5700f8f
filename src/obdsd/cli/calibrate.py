"""Find out from which similarity on something in an index fits: obdsd calibrate photos.index DATA.

DATA are photos with labels, of classes that the model was not trained on. Each of them searches the index and the other photos. The
threshold is the similarity at which a share of them, the false-match rate, has a best answer of another class. It is kept in the index, and
obdsd search then answers "nothing alike" below it.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, asdict, dataclass
from typing import TYPE_CHECKING, Literal

from obdsd.cli.embed import ModelOptions, embed_part, open_both, tell_seen
from obdsd.errors import printable
from obdsd.options import LARGEST, option

if TYPE_CHECKING:
    from obdsd.evaluation import Points
    from obdsd.search import Index
    from obdsd.search.calibration import Calibration


@dataclass(frozen=True)
class Options(ModelOptions):
    index: str = option(MISSING, "An index that obdsd index wrote.", positional=True)
    data: str = option(MISSING, "Labelled photos: NAME:PATH, glyphs, or an embeddings file for a model that takes one.", positional=True)
    rates: tuple[float, ...] = option((), "False-match rates; default 0.01,0.001, as far as there are items enough to show them.")
    part: Literal["test", "val"] = option("test", "Which items; test stands for query and gallery where the data have these.")
    seed: int = option(0, "Seed of the bootstrap over classes.", at_least=0, below=LARGEST)


def run(options: Options) -> None:
    from obdsd.data.check import check_scorable
    from obdsd.search import Index
    from obdsd.search.folder import MODEL

    index = Index.open(options.index)
    _ = index.embedder  # a model that is damaged is told here
    model = str(index.path / MODEL)
    embedder, collection = open_both(model, options.data, options)
    chosen = check_scorable(options.data, collection.parts, options.part)
    tell_seen(model, embedder, chosen)
    rates = _rates(options, sum(map(len, chosen.values())))
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
    about = {"data": options.data, "queries": found.queries, "classes": found.classes, "searched": found.searched}
    index.set_thresholds({each.rate: asdict(each) | about for each in found.thresholds})
    print(*map(printable, _lines(options, found)), sep="\n")


def _rates(options: Options, items: int) -> tuple[float, ...]:
    """Those asked for, or the usual ones that so many items can show."""
    from obdsd.search.calibration import RATES, check_rates, items_needed

    if options.rates:
        check_rates(options.rates, items)
        return options.rates
    shown = tuple(rate for rate in RATES if items >= items_needed(rate))
    check_rates(shown or RATES[:1], items)
    for rate in sorted({*RATES} - {*shown}):
        needed = f"a false-match rate of {rate:.4g} needs {items_needed(rate):,} items or more, there are {items:,}"
        print(f"obdsd: {options.data}: {needed}; it is left out", file=sys.stderr)
    return shown


def _labelled(index: Index) -> Points | None:
    """The items of the index that have a label: of others nobody knows whether a match is false."""
    import numpy as np

    from obdsd.evaluation import Points

    places = [place for place, item in enumerate(index.items) if item.label is not None]
    if len(places) < len(index.items):
        without = f"{len(index.items) - len(places):,} of {len(index.items):,} items of the index have no label and are not searched"
        print(f"obdsd: {index.path}: {without}; false matches are more frequent in a larger collection", file=sys.stderr)
    return Points(index.rows[places], np.array([index.items[place].label for place in places])) if places else None


def _lines(options: Options, found: Calibration) -> list[str]:
    asked = f"{found.queries:,} items of {found.classes:,} classes, each searches {found.searched:,} others"
    alone = found.queries - found.with_own
    lines = [f"{options.data}: {asked}"]
    lines += [f"{alone:,} of them have no other item of their class to miss"] if alone else []
    lines.append(f"{'false-match rate':<18}{'similarity':>10}  {'95 % interval':<18}{'misses (FNMR)':>13}  95 % interval")
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
    other = "".join(f"; --false-match-rate {each.rate:g} takes {each.similarity:.3f}" for each in stricter)
    return [*lines, f'kept: obdsd search {options.index} answers "nothing alike" below {first.similarity:.3f}{other}']
