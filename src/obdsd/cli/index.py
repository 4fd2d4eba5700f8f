"""Make a collection searchable, or change what is: obdsd index MODEL DATA --out photos.index, obdsd index photos.index --refresh.

photos.index is a folder with the model, the vectors and a table of the items: all that obdsd search needs. Interrupted, the same command
goes on from there. obdsd index photos.index --add DATA, --remove NAME … and --refresh change it; only what is new is embedded. obdsd index
photos.index alone tells what is in it.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from obdsd.cli.embed import MODEL, BackboneOptions, PassOptions, check_both, computed_before, open_both, tell_remark, tell_remarks
from obdsd.errors import InputError, Terminated, printable
from obdsd.files import read_mapping
from obdsd.options import OpeningOptions, opening, option

if TYPE_CHECKING:
    from obdsd.search import Index, Pass
    from obdsd.search.folder import Stored
    from obdsd.terminal import Tell

LABELS = 20  # that are shown


@dataclass(frozen=True)
class Options(PassOptions):
    model: str = option(MISSING, f"{MODEL} Or an index, to change it.", positional=True)
    data: list[str] = option(
        (), "The collection: NAME:PATH, glyphs, or an embeddings file. With --remove, names of items; with --refresh, where it moved to.",
        positional=True,
    )  # fmt: skip
    out: str | None = option(None, "The index to write: a new folder, such as photos.index.")
    kind: Literal["flat", "hnsw", "ivf"] | None = option(
        None, "How vectors are searched: flat is exact, and the default; hnsw and ivf are faster for very many, with a recall that is told."
    )
    store: str | None = option(
        None, "Where the vectors are: folder, the default, or Milvus: milvus:FILE.db (Milvus Lite) or milvus:http://HOST:PORT."
    )
    add: bool = option(False, "Add the items of DATA to an index.")
    remove: bool = option(False, "Remove items from an index by their names; --refresh does not bring them back.")
    refresh: bool = option(False, "Look at the collection of an index again: new and changed items are embedded, those gone are removed.")
    engine: str = option(
        "torch",
        "What runs the model: torch; onnx, that is onnxruntime on a file that is made and compared first; or FILE.onnx of obdsd export.",
    )
    rerank: str | None = option(None, "A re-ranker to be fitted to the index now, not when a search first asks for it; such as diffusion.")

    def __post_init__(self) -> None:
        from obdsd.search.how import check_engine

        asked = [name for name in ("add", "remove", "refresh") if getattr(self, name)]
        if len(asked) > 1:
            raise InputError(f"{' and '.join(f'--{name}' for name in asked)} are given; do one after the other")
        if asked and self.out is not None:
            raise InputError(f"out={self.out} is for a new index, --{asked[0]} changes one that is there; leave one of them out")
        if not asked and self.data and self.out is None:
            raise InputError("--out must be given: obdsd index MODEL DATA --out photos.index")
        if self.out is not None and len(self.data) != 1:
            example = "obdsd index MODEL DATA --out photos.index, with MODEL such as tf_efficientnet_lite0:offline"
            raise InputError(f"DATA must be one collection, not {len(self.data)}: {example}")
        if self.add and len(self.data) != 1:
            raise InputError(f"add=true takes one collection, not {len(self.data)}: obdsd index photos.index --add DATA")
        if self.remove and not self.data:
            raise InputError("remove=true needs the names of items: obdsd index photos.index --remove NAME …")
        if self.refresh and len(self.data) > 1:
            raise InputError("refresh=true takes at most one collection, the one that moved: obdsd index photos.index --refresh DATA")
        only_look = not asked and self.out is None and self.rerank is None and self.kind is None and self.store is None
        if only_look and not (Path(self.model).expanduser() / "index.json").is_file():
            raise InputError("say what to do: DATA and --out for a new index; --add, --remove, --refresh or --rerank to change one")
        check_engine(self.engine, self.device)
        if self.store is not None:
            from obdsd.search.milvus import uri_of

            uri_of(self.store)


def run(options: Options) -> None:
    from obdsd.search.folder import is_index, read_settings
    from obdsd.terminal import stages

    start, place = time.monotonic(), Path(options.out or options.model).expanduser()
    fitted = read_settings(place).rerank if is_index(place) else {}
    try:
        if options.out is not None:
            index = _build(options)
        else:
            with stages(unit="items") as progress:
                index = _change(options, progress)
    except (KeyboardInterrupt, Terminated):
        print(f"stopped; {place} keeps what was embedded: the same command goes on from there", file=sys.stderr)
        raise
    _tell(index, time.monotonic() - start, fitted)
    if index.change is None and options.rerank is None:
        print(*map(printable, _content(index)), sep="\n")
    if options.out is not None:
        print(f"search it with: obdsd search {shlex.quote(str(place))} PHOTO.jpg")


def _build(options: Options) -> Index:
    from obdsd.search import Index
    from obdsd.search.fitting import canonical
    from obdsd.search.folder import check_new_place
    from obdsd.terminal import stages

    (data,) = options.data
    check_new_place(Path(str(options.out)).expanduser())
    check_both(options.model, data)
    rerank = [] if options.rerank is None else [canonical(options.rerank)]  # seconds of imports: what is wrong is told before
    embedder, collection = open_both(options.model, data, options, beside=True)
    tell_remarks(collection)
    with stages(unit=collection.kind) as progress:
        how = _pass(options, progress, known=partial(computed_before, embedder, collection))
        more = {"how": how, "collection": collection, **_opening(options)}
        return Index.build(embedder, data, str(options.out), kind=options.kind, store=options.store, rerank=rerank, **more)


def _change(options: Options, progress: Tell) -> Index:
    from obdsd.data import check_there
    from obdsd.search import Index
    from obdsd.search.naming import sources_named

    for each in fields(BackboneOptions):
        if getattr(options, each.name) is not None:
            raise InputError(f"{each.name}={getattr(options, each.name)} is for a new index, this one has its model; leave it out")
    index = Index.open(options.model)
    if options.remove:
        sources_named(options.data, index.items, index.settings.sources)
    elif options.add or options.refresh:
        for data in options.data:
            check_there(data)  # seconds of imports: what is wrong is told before
    how = _pass(options, progress, tell=tell_remark)
    if options.store is not None:
        index = index.of_store(options.store, how=how)
    if options.add:
        index = index.add(options.data[0], how=how, **_opening(options))
    elif options.remove:
        index = index.remove(options.data, how=how)
    elif options.refresh:
        index = index.refresh(*options.data, how=how, **_opening(options))
    if options.kind is not None:
        index = index.of_kind(options.kind, how=how)
    return index if options.rerank is None else index.fit(options.rerank, how=how)


def _pass(options: Options, progress: Tell, **more: Any) -> Pass:
    from obdsd.search import Pass

    how = {name: getattr(options, name) for name in ("batch_size", "workers", "device", "engine")}
    return Pass(**how, progress=progress, **more)


def _opening(options: Options) -> dict[str, Any]:
    """How the data are opened, where that is not as usual."""
    usual = {each.name: each.default for each in fields(OpeningOptions)}
    return {name: value for name, value in opening(options).items() if value != usual[name]}


def _tell(index: Index, seconds: float, fitted: Mapping[str, Stored]) -> None:
    from obdsd.terminal import span

    settings, change = index.settings, index.change
    line = f"{index.path}: {settings.items:,} items, vectors of length {settings.dim:,}"
    if change is not None:
        line += f"; {change.new:,} new, {change.changed:,} changed, {change.gone:,} gone; {change.embedded:,} embedded"
        line += f" in {span(seconds)}" if change.embedded else ""
    print(line)
    if settings.store is not None:
        print(f"vectors: milvus:{settings.store.uri}, collection {settings.store.collection}")
    if settings.kind != "flat":
        print(f"{settings.kind}: finds {100 * settings.recall:.1f} % of the 10 nearest items that an exact search finds")
    if settings.rerank:
        told = [f"{spec} ({'kept' if fitted.get(spec) == file else 'fitted'})" for spec, file in settings.rerank.items()]
        print(f"re-rankers: {', '.join(told)}")


def _content(index: Index) -> list[str]:
    """What is in an index."""
    from obdsd.search.folder import checked

    settings, items = index.settings, Counter(item.source for item in index.items)
    labels = Counter(item.label for item in index.items if item.label is not None)
    lines = [f"items of {source.data}: {items[number]:,}" for number, source in enumerate(settings.sources)]
    shown = ", ".join(f"{label} ({count:,})" for label, count in labels.most_common(LABELS))
    more = ", …" if len(labels) > LABELS else ""
    lines += [f"{len(labels):,} labels: {shown}{more}"] if labels else []
    without = len(index.items) - labels.total()
    lines += [f"without a label: {without:,}"] if without else []
    model = read_mapping(checked(index.path, settings.files["model.json"]))
    sees = f", images of {model['preprocessing']['size']} px" if model["preprocessing"] else ""
    lines.append(f"model: {model['backbone']}, head {model['head']}{sees}")
    kept = sorted(((float(rate), known) for rate, known in settings.thresholds.items()), key=lambda pair: -pair[0])
    lines += [
        f"false-match rate {rate:g}: similarity {known['similarity']:.3f}, measured on {known.get('data', '?')}" for rate, known in kept
    ]
    return lines
