"""Does a finished run say what is true? Its scores are computed again, its files compared with each other and with its data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from obdsd.counting import Progress
from obdsd.errors import InputError
from obdsd.files import read_mapping
from obdsd.options import as_dict
from obdsd.training.build import collection_of
from obdsd.training.checkpoints import read_state
from obdsd.training.loop import SYSTEM
from obdsd.training.ranks import Ranks, engine
from obdsd.training.run_folder import RunFolder, RunRecord, data_record, model_digest
from obdsd.training.scoring import Scoring

SAMPLE = 32  # items of a part whose kept rows are compared with what the model makes of them


class Check(NamedTuple):
    """What was looked at, and what does not agree; nothing if all is well."""

    what: str
    differences: Sequence[str]


def verify_run(
    folder: Path,
    *,
    data: str | None = None,
    device: str = "auto",
    tolerance: float = 1e-4,
    progress: Progress = lambda stage, done, total: None,
) -> Iterator[Check]:
    """Look at one side of a run after the other.

    Args:
        folder: A finished run.
        data: Where its data are now, if not where they were.
        device: Where its model runs.
        tolerance: How far numbers may be from those that are computed again; rounding differs between machines.
        progress: Told the stage, how much of it is done, and of how much.
    """
    record = RunRecord.read(folder)
    yield Check("the files are whole", list(_damaged(record)))
    yield _check("the files say the same", _contradictions(record, tolerance))
    options = record.options.replace(data=data or record.source)
    collection = collection_of(options)
    changed = record.data != data_record(collection)
    yield Check("the data are those of the training", [f"data={options.data} changed since then"] * changed)
    if changed:
        return
    model, kept = record.model(), record.rows()
    scoring = Scoring(options, collection, model, Ranks(engine(device, "32")), progress)
    model.to(scoring.ranks.fabric.device)
    if kept:
        others = list(_other_rows(scoring, kept, tolerance))
        yield Check("the kept rows are the model's", others)
        scoring.remember({} if others else kept)
    yield _check("the scores are those of the rows", _other_scores(record, scoring, tolerance))


def _check(what: str, differences: Iterator[str]) -> Check:
    try:
        return Check(what, list(differences))
    except (KeyError, TypeError, ValueError, AttributeError) as damage:  # files that RunRecord takes, but nobody wrote
        return Check(what, [f"a field is not there, or not what it should be ({damage!r})"])


def _contradictions(record: RunRecord, tolerance: float) -> Iterator[str]:
    """What two files say differently."""
    result, options = read_mapping(record.folder / "result.json"), as_dict(record.options)
    # runs from before there was a choice do not say how they matched
    said = {"matching": "kl", **result["system"], "score": result["scored"], "seed": result["seed"], "preset": result["preset"]}
    yield from _differences("result.json", said, "config.yaml", {name: options[name] for name in (*SYSTEM, "score", "seed", "preset")})
    reference = RunFolder(record.folder, writes=False).reference() or {}
    for name in dict.fromkeys([*record.reference, *reference]):
        one, other = record.reference.get(name, {}), reference.get(name, {})
        yield from _differences(f"{name} in result.json", one, "in reference.json", other)
    epochs = [line.get("epoch") for line in record.metrics]
    if epochs != list(range(len(epochs))) or record.epoch not in epochs:
        yield f"metrics.jsonl has the epochs {epochs}, result.json the epoch {record.epoch} (counted from 0)"
        return
    line = record.metrics[record.epoch]
    if record.interpolation is not None:  # what is kept is of no epoch
        chosen = record.interpolation["recall@1"][record.interpolation["shares"].index(record.interpolation["share"])]
        found = {"recall@1": (record.validation or {}).get("recall@1")}
        yield from _differences("interpolation of result.json", {"recall@1": chosen}, "its validation", found, tolerance)
        line = {}
    for name, scores in (("train", record.train), ("validation", record.validation or {}), ("test", record.scores)):
        own = {each: value for each, value in line.get(name, {}).items() if value is not None}  # clusters are left out there
        yield from _differences(f"{name} in metrics.jsonl", own, "in result.json", {each: scores.get(each) for each in own}, tolerance)
    first = record.folder / "first"
    seconds = sum(line["seconds"] for line in record.metrics) + (RunRecord.read(first).seconds if first.exists() else 0)
    if abs(seconds - record.seconds) > 0.001 * (len(epochs) + 1):
        yield f"seconds: {record.seconds} in result.json, the epochs of metrics.jsonl add up to {seconds:.3f}"


def _damaged(record: RunRecord) -> Iterator[str]:
    """Files that are not what was written."""
    written = read_mapping(record.folder / "result.json").get("model")
    if written != model_digest(record.folder):
        yield "model/model.safetensors is not the file that was written with result.json"
    for path in sorted((record.folder / "checkpoints").glob("*.pt")):
        try:
            read_state(path)
        except InputError as damage:
            yield str(damage).rpartition(";")[0]


def _other_rows(scoring: Scoring, kept: Mapping[str, Any], tolerance: float) -> Iterator[str]:
    for name, rows in kept.items():
        part = scoring.collection[name]
        sample = np.unique(np.linspace(0, len(part) - 1, SAMPLE).astype(int))
        made = scoring.rows_of(scoring.model, part.take(sample))
        if rows.shape != (len(part), made.shape[1]):
            yield f"{name} in rows.npz has shape {rows.shape} for {len(part)} items of length {made.shape[1]}"
        elif not np.abs(rows[sample] - made).max() <= tolerance:
            yield f"{name} in rows.npz: a row is {np.abs(rows[sample] - made).max():.2g} from what the model makes of its item"


def _other_scores(record: RunRecord, scoring: Scoring, tolerance: float) -> Iterator[str]:
    again = "computed again"
    yield from _differences("train of result.json", record.train, again, scoring.geometry(), tolerance)
    if record.options.score == "none":
        return
    scores = scoring.final()
    assert scores.per_class is not None
    yield from _differences("scores of result.json", record.scores, again, scores.as_dict(), tolerance)
    reranked = scoring.reranked()
    for name in dict.fromkeys([*record.reranked, *reranked]):
        said, found = record.reranked.get(name, {}), reranked.get(name, {})
        yield from _differences(f"re-ranked scores ({name}) of result.json", said, again, found, tolerance)
    if record.validation is not None:
        yield from _differences("validation of result.json", record.validation, again, scoring.validation().as_dict(), tolerance)
    if record.reference and scoring.collection.kind == "embeddings":  # of images the network before the training is not kept
        for name, own in scoring.reference_anew().items():
            yield from _differences(f"{name} of result.json", record.reference.get(name, {}), again, own, tolerance)
    kept, classes = record.per_class, scores.per_class
    if kept["labels"] != [str(label) for label in classes.labels] or kept["queries"] != classes.queries.tolist():
        yield "per_class.json has other classes, or other numbers of queries"
        return
    for name, values in classes.values.items():
        one, other = (dict(zip(kept["labels"], column, strict=True)) for column in (kept[name], values.tolist()))
        yield from _differences(f"{name} of per_class.json", one, again, other, tolerance)


def _differences(here: str, said: Mapping[str, Any], there: str, found: Mapping[str, Any], tolerance: float = 0.0) -> Iterator[str]:
    for name in dict.fromkeys([*said, *found]):
        one, other = said.get(name), found.get(name)
        near = isinstance(one, (int, float)) and isinstance(other, (int, float)) and abs(one - other) <= tolerance
        if one != other and not near:
            yield f"{name}: {here} {one!r}, {there} {other!r}"
