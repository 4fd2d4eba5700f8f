"""A comparison as a table for people, Markdown, CSV and JSON, and in plain words."""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from obdsd.data import short_name
from obdsd.evaluation.metrics import Metric, metric
from obdsd.experiments.comparison import FORMAT, Comparison, Line, compared_metrics
from obdsd.experiments.statistics import Interval, Verdict
from obdsd.files import csv_table, read_mapping, replacing, write_json
from obdsd.training.verifying import Check

GROUPS: dict[Verdict, str] = {"better": "Better than", "undecided": "Not told apart from", "worse": "Worse than", "single": "Beside"}
"""What stands above the rows of each kind, before the baseline's name, in the order of a picture."""
MANY = 8  # rows of which a sentence tells several
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


def header() -> list[str]:
    """Of a comparison's table; the first column is the row's name."""
    return ["", *map(title_of, compared_metrics()), "Recall@1, difference", "over seeds", "over classes", "time"]


def title_of(shown: Metric) -> str:
    """A metric's column; one of the training set says so, as obdsd evaluate has the same metric of the scored classes."""
    return f"{shown.title}, training set" if shown.on_training_set else shown.title


def write_tables(comparison: Comparison, out: Path) -> None:
    """`comparison.json`, `.csv` and `.md` in a folder."""
    write_json(out / "comparison.json", _record(comparison))
    write_texts({out / name: text for name, text in _texts(comparison).items()})


def verify_tables(comparison: Comparison, out: Path) -> Check:
    """Do the tables in a folder follow from its runs? Numbers and rows must; titles and words are those of the version that wrote them, and
    one version may show more than another. Where the runs were is of no matter."""
    files = {"comparison.json": _agrees(read_mapping(out / "comparison.json"), _record(comparison))}
    for name, text in _texts(comparison).items():
        written = (out / name).read_bytes().decode(errors="replace") if (out / name).is_file() else ""
        said, prose = _told(written)
        own, own_prose = _told(text)
        numbers = [*zip(said.values(), own.values(), strict=False), (prose, own_prose)]
        files[name] = [*said] == [*own] and all(_same_as_far_as_told(*each) for each in numbers)
    return Check("the tables follow from the runs", [f"{name} is not what the runs say" for name, same in files.items() if not same])


def _agrees(written: Any, own: Any) -> bool:
    """Whether two records say the same in all that both have."""
    if isinstance(written, dict) and isinstance(own, dict):
        return all(_agrees(written[name], own[name]) for name in own if name in written and name != "folders")
    if isinstance(written, list) and isinstance(own, list):
        return len(written) == len(own) and all(map(_agrees, written, own))
    if isinstance(written, float) and isinstance(own, float):
        return math.isclose(written, own, rel_tol=1e-9, abs_tol=1e-12)  # rounding differs between libraries
    return bool(written == own)


def _told(text: str) -> tuple[dict[str, list[str]], list[str]]:
    """The numbers of each row of a table below its header, CSV or Markdown, by the row's name; and those of the words below it."""
    table, _, prose = text.replace("\r\n", "\n").partition("\n\n")
    marked = table.startswith("|")
    rows = [line.strip("| ").split(" | ") for line in table.split("\n")] if marked else list(csv.reader(table.split("\n")))
    return {row[0].strip(): NUMBER.findall(" ".join(row[1:])) for row in rows[1 + marked :] if row}, NUMBER.findall(prose)


def _same_as_far_as_told(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether the numbers of one are among those of the other, in their order."""
    fewer, rest = sorted((one, other), key=len)
    left = iter(rest)
    return all(number in left for number in fewer)


def _record(comparison: Comparison) -> dict[str, Any]:
    """As JSON; what a comparison has not got, and earlier versions did not know, is left out."""
    record = {"format": FORMAT, **_plain(comparison)}
    for holder, names in ((record, ("left_out",)), *((line, ("reranked", "chosen", "budget")) for line in record["lines"])):
        for name in names:
            if holder[name] is None:
                del holder[name]
    return record


def _texts(comparison: Comparison) -> dict[str, str]:
    return {"comparison.csv": csv_table(rows_of(comparison)), "comparison.md": markdown(comparison)}


def write_texts(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        with replacing(path) as file:
            file.write(text.encode())


def rows_of(comparison: Comparison) -> list[list[str]]:
    """The table, without a column of times if none was measured, with re-ranked scores and what was chosen if there are any, and with a row
    for each that was left out."""
    table = [header(), *(cells(line) for line in comparison.lines)]
    table = table if comparison.timed else [row[:-1] for row in table]
    scored = 1 + len(compared_metrics())
    table = [[*row[:scored], *more, *row[scored:]] for row, more in zip(table, _reranked_columns(comparison.lines), strict=True)]
    if any(line.chosen for line in comparison.lines):
        table = [[*row, more] for row, more in zip(table, ["chosen", *(line.chosen or "" for line in comparison.lines)], strict=True)]
    blank = [""] * (len(table[0]) - 2)
    return [*table, *([name, "left out", *blank] for name in comparison.left_out or {})]


def _reranked_columns(lines: Sequence[Line]) -> list[list[str]]:
    """Recall@1 and MAP@R by each re-ranker, below their titles; a row that was not ranked by it has none."""
    rerankers = dict.fromkeys(name for line in lines for name in line.reranked or {})
    shown = [(name, metric(score)) for name in rerankers for score in ("recall@1", "map@r")]
    scores = [[(line.reranked or {}).get(name, {}).get(of.name) for name, of in shown] for line in lines]
    titles = [f"{of.title}, {name}" for name, of in shown]
    return [titles, *(["" if score is None else of.text(score) for score, (_, of) in zip(row, shown, strict=True)] for row in scores)]


def cells(line: Line) -> list[str]:
    """One row of the table: means, then the difference in Recall@1 with its two intervals, then the time ratio."""
    means = [metric(name).text(mean.mean) for name, mean in line.means.items()]
    if line.differences is None:
        return [line.name, *means, "", "", "", "1"]
    gain = line.differences["recall@1"]
    time = "" if line.time_ratio is None else f"{line.time_ratio:.2f}"
    return [line.name, *means, signed(100 * gain.mean, 2), ends(gain), ends(line.over_classes), time]


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns for a terminal: names to the left, numbers to the right."""
    first, *rest = (max(map(len, column)) for column in zip(*rows, strict=True))
    return "\n".join("  ".join([row[0].ljust(first), *map(str.rjust, row[1:], rest)]).rstrip() for row in rows)


def markdown(comparison: Comparison) -> str:
    table = markdown_table(rows_of(comparison))
    return "\n\n".join([table, caption(comparison), *sentences(comparison)]) + "\n"


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the header."""
    first, *others = rows
    ruled = [first, ["---", *["---:"] * (len(first) - 1)], *others]
    return "\n".join("| " + " | ".join(row) + " |" for row in ruled)


def units() -> str:
    """What the columns are: shares in percent, and those of the training set."""
    shares = ", ".join(shown.title for shown in compared_metrics() if shown.percent)
    trained = " and ".join(shown.title.lower() for shown in compared_metrics() if shown.on_training_set)
    return f"{shares} in percent; {trained} of the training set by its true labels"


def caption(comparison: Comparison) -> str:
    n = len(comparison.seeds)
    before = "".join(f" Recall@1 of {untrained(name)}, untrained: {100 * value:.2f}." for name, value in comparison.reference.items())
    beside = ""
    if comparison.timed:
        beside = f" Time is that of a step beside one of {comparison.lines[0].name}, in turns, without loading and evaluation."
    return (
        f"{short_name(comparison.data)}, {comparison.scored} classes, {comparison.epochs}. Means over {n} seed{'s' * (n > 1)}; {units()}. "
        f"Differences are paired by seed, with a 95 % t interval over seeds and a bootstrap over classes.{beside}{before}"
    )


def sentences(comparison: Comparison) -> list[str]:
    """What the table says: a sentence about the baseline, one for each other row, one if rows have different weights λ, and one if rows
    are worse than what was there before."""
    baseline, *others = comparison.lines
    recall = 100 * baseline.means["recall@1"].mean
    first = f"{baseline.name}: for {recall:.1f} % of the queries the nearest other item is of their class."
    each = [_sentence(line, baseline) for line in others] if len(others) < MANY else _by_group(comparison)
    told = [first, *each, *weights(comparison), *_fairness(comparison)]
    return [*told, *(sentence for line in comparison.lines for sentence in reranked(line)), *below_untrained(comparison)]


def ranked(comparison: Comparison) -> list[Line]:
    """The baseline, then the rows that are better, those that cannot be told apart, and those that are worse; the best of each first."""
    baseline, *others = comparison.lines
    order = list(GROUPS)
    return [baseline, *sorted(others, key=lambda line: (order.index(_gain(line).verdict), -_gain(line).mean))]


def _gain(line: Line) -> Interval:
    assert line.differences is not None
    return line.differences["recall@1"]


def _by_group(comparison: Comparison) -> list[str]:
    """A sentence for all rows of a kind."""
    baseline, *others = ranked(comparison)
    told = []
    for kind, title in GROUPS.items():
        if rows := [f"{line.name} {100 * _gain(line).mean:+.1f}" for line in others if _gain(line).verdict == kind]:
            more = "; one seed, no conclusion" if kind == "single" else ""
            told.append(f"{title} {baseline.name} (points of Recall@1{more}): {', '.join(rows)}.")
    return told


def _fairness(comparison: Comparison) -> list[str]:
    """What a reader must know of how rows were chosen, of those that saw other batches or were trained longer, and of those left out."""
    told = []
    if any(line.chosen for line in comparison.lines):
        told.append(
            "Each row's main setting was chosen among three values on held-out training classes; chosen.json has what each came to."
        )
    own = [f"{line.name} {name} {value}" for line in comparison.lines for name, value in (line.budget or {}).items()]
    if own:
        told.append(f"Not at the baseline's budget: {'; '.join(own)}.")
    return [*told, *(f"Left out: {name}: {reason}." for name, reason in (comparison.left_out or {}).items())]


def reranked(line: Line) -> list[str]:
    """A sentence for each re-ranker that a row was scored with."""
    if not line.reranked:
        return []
    by_cosine = {name: f"(by cosine {100 * line.means[name].mean:.1f} %)" for name in ("recall@1", "map@r")}
    return [
        f"{line.name}, re-ranked by {name} (transductive): Recall@1 {100 * means['recall@1']:.1f} % {by_cosine['recall@1']}, "
        f"MAP@R {100 * means['map@r']:.1f} % {by_cosine['map@r']}."
        for name, means in line.reranked.items()
    ]


def weights(comparison: Comparison) -> list[str]:
    """A sentence if rows differ in the weight of the distillation; rows that nobody teaches have none."""
    taught = {line.name: line.weight for line in comparison.lines if line.weight is not None and not line.chosen}
    if len(set(taught.values())) < 2:
        return []
    return [f"Weight λ of the distillation: {', '.join(f'{name} {weight:g}' for name, weight in taught.items())}."]


def untrained(name: str) -> str:
    """What was there before the training, by its name in the files, in words."""
    return "their PCA to the embedding's length" if name == "their PCA" else name


def below_untrained(comparison: Comparison) -> list[str]:
    """A sentence if training made some rows worse than the best of what was there before it."""
    best = max(comparison.reference, key=lambda name: comparison.reference[name], default="")
    below = [line.name for line in comparison.lines if line.means["recall@1"].mean < comparison.reference.get(best, 0.0)]
    if not below:
        return []
    every = "Every row is" if len(below) == len(comparison.lines) > 1 else f"{', '.join(below)} {'is' if len(below) == 1 else 'are'}"
    advice = "begin the head as their projection (--head-init projection) if it did not, and choose epochs and lr on held-out classes"
    return [f"{every} below {untrained(best)} without any training ({100 * comparison.reference[best]:.1f} %): {advice}."]


def _sentence(line: Line, baseline: Line) -> str:
    assert line.differences is not None
    gain = line.differences["recall@1"]
    result = f"{line.name}: {100 * line.means['recall@1'].mean:.1f} %, {100 * gain.mean:+.1f} points"
    if math.isnan(gain.low):
        return f"{result} against {baseline.name}. One seed: no interval over seeds, no conclusion."
    verdict = f"{'better' if gain.mean > 0 else 'worse'} than" if gain.tells_apart else "no clear difference from"
    return f"{result} (95 % interval {ends(gain)}): {verdict} {baseline.name}."


def ends(interval: Interval | None, points: float = 100.0) -> str:
    """The ends of a difference's interval in points; nothing where there is none. `points` make a difference of 1."""
    return "" if interval is None or math.isnan(interval.low) else f"{points * interval.low:+.2f} to {points * interval.high:+.2f}"


def signed(value: float | None, digits: int, unit: str = "") -> str:
    """A difference; nothing where there is none."""
    return "" if value is None else f"{value:+.{digits}f}{unit}"


def _plain(value: Any) -> Any:
    """Ready for JSON, which has no NaN: null instead."""
    if dataclasses.is_dataclass(value) or isinstance(value, Interval):
        value = value._asdict() if isinstance(value, Interval) else vars(value)
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
