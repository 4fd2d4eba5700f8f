"""Numbers in the sentences of the pages. A comment right behind a number says what it is, and the number is made from the records:

    The plain loss has 38.3<!-- R@1 of ms in cub-projected-free --> and PSD +0.8<!-- R@1 of psd - ms in cub-projected-free -->.

The grammar is `SCORE of ROWS in PLACE`; ROWS is a row, a difference `ours - other` or a relative change `ours / other` (in percent), both
paired by seed. A row of another place is `ROW in PLACE`. `low end of …` and `high end of …` are the ends of a difference's interval.
A place is a regime (`cub-linear-free`), a stage of it (`cub-linear-free/noise-0.2`), what held-out classes said
(`cub-linear-free/held-out`), `teachers`, `reranking/FEATURES`, or `table NAME`: its columns are the scores, and a row's name is that of its
first cells. The number keeps its decimals and, if it has one, its sign.
"""

from __future__ import annotations

import re

import numpy as np

from obdsd.experiments.statistics import t_interval
from obdsd.files import read_mapping
from study import reading, teachers
from study.records import RESULTS, Record

MARKED = re.compile(r"((?:(?<!\d)[-+±])?\d+(?:\.(\d+))?)<!-- (.+?) -->")
QUESTION = re.compile(r"(?:(low|high) end of )?(.+?) of (.+) in (.+)")
SCORES = {**reading.SCORES, **reading.GEOMETRY}
GIVEN = "given"
"""The mark of a number that is no result: a setting, or a fact from elsewhere."""
RERANKED = " re-ranked"
"""Behind the name of a row: the same runs, ranked by the re-ranker that they were scored with."""

NO_RESULTS = (
    r"```.*?```",  # code
    r"`[^`\n]*`",
    r"^#.*$",  # headings
    r"^\|.*$",  # tables, which are made from the records
    r"\]\([^)]*\)",  # where links lead
    r"\S+ = [\d.,]+",  # settings
    r"95 % interval",
)
RESULT = re.compile(r"[-+±]?\d+\.\d+|[-+±]?\d+(?:\.\d+)? (?:%|points?\b)")


def filled(text: str) -> str:
    """The page with each marked number made again from the records."""

    def made(match: re.Match[str]) -> str:
        return match[0] if match[3] == GIVEN else f"{written(value_of(match[3]), match[1])}<!-- {match[3]} -->"

    return MARKED.sub(made, text)


def written(value: float, like: str) -> str:
    """A number with the decimals of another, and with a sign if that has one."""
    text = f"{value:{'+' if like[0] in '+-±' else ''}.{len(like.partition('.')[2])}f}"
    return text if float(text) else "±" + text.lstrip("+-") if like[0] in "+-±" else text.lstrip("-")


def unmarked(text: str) -> list[str]:
    """Numbers in sentences that look like a result and name no record: with a decimal point, in percent, or in points."""
    text = MARKED.sub("", text)
    for pattern in NO_RESULTS:
        text = re.sub(pattern, "", text, flags=re.DOTALL if pattern.startswith("```") else re.MULTILINE)
    return RESULT.findall(text)


def value_of(question: str) -> float:
    """The answer to `SCORE of ROWS in PLACE`."""
    if not (asked := QUESTION.fullmatch(question)):
        raise SystemExit(f"<!-- {question} --> does not say what the number is; write it as <!-- R@1 of psd - ms in cub-linear-free -->")
    end, score, rows, place = asked.groups()
    if place.startswith("table "):
        return cell_of(place.removeprefix("table "), rows, score)
    if score not in SCORES:
        raise SystemExit(f"<!-- {question} -->: there is no score {score}; there are {', '.join(SCORES)}")
    ours, operator, other = re.fullmatch(r"(.+?)(?: ([-/]) (.+))?", rows).groups()  # type: ignore[union-attr]
    values = _values(ours, place, score)
    if not operator:
        return float(np.mean([*values.values()]))
    baseline = _values(other, place, score)
    shared = sorted(values.keys() & baseline.keys())
    if operator == "/":
        return 100 * float(np.mean([values[seed] for seed in shared]) / np.mean([baseline[seed] for seed in shared]) - 1)
    interval = t_interval(np.array([values[seed] - baseline[seed] for seed in shared]))
    return {None: interval.mean, "low": interval.low, "high": interval.high}[end]


def _values(row: str, place: str, score: str) -> dict[int, float]:
    """The score of each seed of `ROW` or `ROW in PLACE`."""
    row, _, own = row.partition(" in ")
    rows = rows_in(own or place)
    if row not in rows:
        raise SystemExit(f"there is no row {row} in {own or place}; there are {', '.join(rows) or 'none'}")
    return {seed: SCORES[score](record) for seed, record in rows[row].items()}


def rows_in(place: str) -> reading.Results:
    """All rows of a place by their names: a regime's with the untrained features and with the rows re-ranked."""
    regime, _, part = place.partition("/")
    if regime == "reranking":
        found = read_mapping(RESULTS / "reranking.json")[part]["test"]
        return {kind: {0: _shares(scores)} for kind, scores in found.items()}
    if regime == "teachers":
        found = read_mapping(teachers.FILE)
        return {row: {seed: {"scores": runs[seed % len(runs)]} for seed in range(teachers.SEEDS)} for row, runs in found.items()}
    if part == "held-out":
        return {row: {0: {"scores": {"recall@1": chosen["validation"]}}} for row, chosen in reading.chosen_of(regime).items()}
    results = reading.results_of(regime, part or "test")
    reranked = {f"{row}{RERANKED}": of for row, seeds in results.items() if (of := _reranked(seeds))}
    return {**_untrained(results), **results, **reranked}


def _shares(percent: dict[str, float | str]) -> Record:
    return {"scores": {name: value / 100 for name, value in percent.items() if not isinstance(value, str)}}


def _reranked(seeds: reading.Seeds) -> reading.Seeds:
    """The re-ranked scores of the runs that have some."""
    return {seed: {"scores": scores} for seed, record in seeds.items() for scores in record.get("reranked", {}).values()}


def _untrained(results: reading.Results) -> reading.Results:
    """What was there before the training, for every seed alike."""
    plain = results.get("ms", {})
    references = plain[0].get("reference") or {} if 0 in plain else {}
    return {name: {seed: {"scores": scores} for seed in plain} for name, scores in references.items()}


def cell_of(table: str, row: str, column: str) -> float:
    """The first number in a cell of a table that is made from the records. A row is known by its first cells, joined by commas."""
    from study.tables import made

    header, *lines = made(table)
    found = [line for line in lines for cells in range(1, 4) if ", ".join(line[:cells]) == row]
    if not found or column not in header:
        raise SystemExit(f"the table {table} has no cell {column} of {row}; its columns are {', '.join(header)}")
    return float(re.findall(r"[-+]?\d+(?:\.\d+)?", found[0][header.index(column)])[0])
