"""Find the items of an index that are most like a photo: obdsd search photos.index QUERY.jpg.

QUERY is an image, a folder of images, an item of the index by its name (which then does not find itself), an embeddings file, or one of its
rows, FILE:NAME. Several may be given.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from obdsd.cli.embed import check_suffix
from obdsd.errors import InputError, explain_missing, printable
from obdsd.files import check_place, replacing
from obdsd.options import option

if TYPE_CHECKING:
    from obdsd.search import Answer, Index


@dataclass(frozen=True)
class Options:
    index: str = option(MISSING, "An index that obdsd index wrote.", positional=True)
    queries: list[str] = option(
        MISSING, "What to search for: images, folders of images, names of items, embeddings files, or FILE:NAME, one of their rows.",
        positional=True,
    )  # fmt: skip
    k: int = option(5, "How many to find for each.", at_least=1)
    rerank: str | None = option(
        None, "Re-rank by what the whole index tells, such as diffusion; its work on the index is done once and kept."
    )
    threshold: float | None = option(
        None, "Find nothing less similar than this, a cosine; default what obdsd calibrate keeps in the index, -1 finds all."
    )
    false_match_rate: float | None = option(None, "The same, by the threshold that obdsd calibrate keeps for this rate, such as 0.01.")
    within: str | None = option(None, "Only items with this label.")
    store: str | None = option(None, "Where the index's Milvus is, if not where it was: milvus:FILE.db or milvus:http://HOST:PORT.")
    json: bool = option(False, "Print the answers as JSON, for programs.")
    out: str | None = option(None, "A page with the pictures, of suffix .html.")
    batch_size: int = option(64, "Images at a time.", at_least=1)
    workers: int | None = option(None, "Processes that read images; default one a core, at most 8, for many of them.", at_least=0)
    device: str = option("auto", "Where the model runs, such as cpu or cuda:0; auto takes the accelerator if there is one.")

    def __post_init__(self) -> None:
        if self.out is not None:
            check_suffix(self.out, (".html",))
        if self.threshold is not None and self.false_match_rate is not None:
            raise InputError(f"threshold={self.threshold:g} and false_match_rate={self.false_match_rate:g} are given; give one of them")
        if self.threshold is not None and not -1 <= self.threshold <= 1:
            raise InputError(f"threshold={self.threshold:g} must be a cosine, from -1 to 1; try 0.8")


def run(options: Options) -> None:
    out = None if options.out is None else Path(options.out).expanduser()
    if out is not None:
        check_place(out)
    from obdsd.search import Index, Pass
    from obdsd.terminal import stages

    if any((Path(query).expanduser() / "index.json").is_file() for query in options.queries):
        raise InputError("the index comes first, then what to search for: obdsd search photos.index QUERY.jpg")
    index = Index.open(options.index, options.store)
    rate = options.false_match_rate
    threshold = index.threshold(rate) if options.threshold is None else options.threshold
    with stages(unit="images") as progress:
        how = Pass(batch_size=options.batch_size, workers=options.workers, device=options.device, progress=progress)
        answers = index.search(options.queries, options.k, rerank=options.rerank, threshold=threshold, within=options.within, how=how)
    if options.json:
        record = {"index": str(index.path), "k": options.k, "rerank": options.rerank, "threshold": threshold, "within": options.within}
        print(json.dumps({**record, "answers": [answer.as_dict() for answer in answers]}, indent=2, allow_nan=False))
    else:
        print(*_table(answers, threshold, options.rerank is not None), sep="\n")
    if out is not None:
        _write_page(out, index, answers, options, threshold)


def _table(answers: Sequence[Answer], threshold: float | None, reranked: bool) -> list[str]:
    """A block for each query: a line for each item found, or that there is nothing alike."""
    lines = []
    for answer in answers:
        lines.append(printable(answer.query.name))
        labels = [printable(hit.label or "") for hit in answer.hits]
        width = max(map(len, labels), default=0)
        for rank, (hit, label) in enumerate(zip(answer.hits, labels, strict=True), start=1):
            score = f"  score {hit.score:<#9.4g}" if reranked else ""
            lines.append(f"{rank:>4}  {hit.similarity:6.3f}{score}  {label:<{width}}{'  ' * bool(width)}{printable(hit.name)}")
        if not answer.hits:
            lines.append(f"      {_nothing(answer, threshold)}")
    return lines


def _nothing(answer: Answer, threshold: float | None) -> str:
    if answer.most_alike is None:
        return "nothing alike: there is no other item"
    return f"nothing alike: the nearest item has {answer.most_alike:.3f}, less than {threshold:.3f} (--threshold -1 finds all)"


def _write_page(out: Path, index: Index, answers: Sequence[Answer], options: Options, threshold: float | None) -> None:
    with explain_missing():
        from obdsd.report import render_found
    facts = {"index": f"{index.path.name}, {len(index.items):,} items"}
    facts |= {} if options.rerank is None else {"re-ranked by": options.rerank}
    facts |= {} if threshold is None else {"nothing alike below": f"{threshold:.3f}"}
    facts |= {} if options.within is None else {"only": options.within}
    page, missing = render_found(index, answers, facts)
    with replacing(out) as file:
        file.write(page.encode())
    told = sys.stderr if options.json else sys.stdout
    print(f"page: {out}", file=told)
    if missing:
        remedy = f"if the photos moved: obdsd index {index.path} --refresh DATA"
        print(printable(f"obdsd: {len(missing):,} pictures could not be read, the first is {missing[0]}; {remedy}"), file=sys.stderr)
