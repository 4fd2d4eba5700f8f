"""A table of the paper, run: which trainings it takes at a scale, every finished one a line of one file, none of them repeated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from filelock import FileLock

from obdsd.catalogue import SYSTEMS, TARGETS
from obdsd.data import data_kind, data_name
from obdsd.errors import InputError
from obdsd.experiments.recipes import BENCHMARKS, TABLES, Row, Table
from obdsd.experiments.runs import carry_out, tell
from obdsd.experiments.search import FOLDS, SEARCH_SEED, search
from obdsd.experiments.timing import relative_time
from obdsd.files import append_line, check_format, read_lines, read_mapping, write_json
from obdsd.options import TrainOptions
from obdsd.presets import preset
from obdsd.spec import Spec
from obdsd.training import RunRecord
from obdsd.training.build import collection_of
from obdsd.training.run_folder import data_record

Scale = Literal["paper", "small", "tiny"]
FEW_STEPS = {"epochs": 2, "epoch_batches": 4, "batch_size": 32, "size": 16, "pretrained": "none", "reference": False}
SCALES: dict[str, dict[str, Any]] = {
    "paper": {},
    "small": {"head": "two-layer", "hidden": 512, "head_init": "random", "evaluate_every": 0},
    "tiny": {**FEW_STEPS, "evaluate_every": 0, "val_fraction": 0.9, "score": "validation"},
}
"""What each scale changes of a row: nothing; a head of two layers on frozen features; eight steps on built-in letters."""
SETTINGS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "small": {"widths": lambda widths: [width // 4 for width in widths]},  # narrower heads: the features are fewer too
    "tiny": {
        "feature_from": lambda _: 2,
        "neighbours": lambda _: 5,
        "every": lambda _: 1,
        "warm": lambda _: 0,
        "gap": lambda _: 0,
        "sets": lambda _: 2,
    },
}
"""What each scale makes of a setting, in every part that has it."""
KINDS = {"paper": BENCHMARKS, "small": ("embeddings",), "tiny": ("glyphs",)}  # of data
REMEDY = {
    "paper": "give a benchmark, as --data cub200:PATH",
    "small": "give frozen features: obdsd embed tf_efficientnet_lite0:offline cub200:PATH --out cub.npz, then --data cub.npz",
    "tiny": "leave it out for the built-in letters",
}
CHOICE: tuple[float, ...] = (10.0, 100.0, 1000.0)
"""Weights among which held-out classes choose: at the small scale for every row that does not set its own (S2SD keeps its authors'), at the
paper's for the row whose weight the paper searched."""
FORMAT = 1  # of a line of results.jsonl
RESULTS, TIMES, CHOSEN = "results.jsonl", "times.json", "chosen.json"
TURNS = {"paper": 30, "small": 30, "tiny": 1}  # steps of each of two rows by which their times are compared


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Which table, at which scale, on what."""

    table: str
    scale: Scale
    data: str
    seeds: int
    out: Path
    only: str | None = None
    jobs: int = 1
    changes: Mapping[str, Any] = field(default_factory=dict)  # of every row's settings
    similarities: str | None = None  # the file of them, for rows that learn from how alike classes are

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", data_name(self.data))  # runs, times and chosen weights are known by it
        if self.scale == "small" and self.recipe.needs_images:
            raise InputError(f"table={self.table} needs images, scale=small has features only; use scale=paper or tiny")
        if data_kind(self.data) not in KINDS[self.scale]:
            raise InputError(f"data={self.data} does not go with scale={self.scale}; {REMEDY[self.scale]}")
        if self.similarities is not None and not any(row.similarities for row in self.recipe.rows(self.benchmark)):
            raise InputError(f"similarities={self.similarities} does nothing: no row of {self.table} learns from them here; leave it out")
        if self.only in self.without:
            raise InputError(f"only={self.only} learns from how alike classes are; give similarities=FILE, a table of them")
        if self.only is not None and self.only not in self.rows:
            raise InputError(f"only={self.only} is no row of {self.table}; there are {', '.join(self.rows)}")
        for name, value in self.changes.items():
            if len({row.changes.get(name) for row in self.rows.values()}) > 1:
                raise InputError(f"{name}={value} would undo what the rows of {self.table} differ in; leave it out")
            if name in ("backbone", "pretrained") and self.scale == "small":
                raise InputError(f"{name}={value} is for networks, scale=small has features only; leave it out or use scale=paper")

    @property
    def recipe(self) -> Table:
        return TABLES[self.table]

    @property
    def benchmark(self) -> str:
        """Whose settings and published numbers count: those of CUB-200-2011 where the data are no benchmark."""
        kind = data_kind(self.data)
        return kind if kind in BENCHMARKS else "cub200"

    @property
    def rows(self) -> dict[str, Row]:
        """All that can be trained."""
        return {row.name: self._with_file(row) for row in self.recipe.rows(self.benchmark) if row.name not in self.without}

    @property
    def without(self) -> list[str]:
        """The rows that lack their file."""
        return [row.name for row in self.recipe.rows(self.benchmark) if row.similarities and self.similarities is None]

    def _with_file(self, row: Row) -> Row:
        if not row.similarities:
            return row
        path = str(Path(str(self.similarities)).expanduser().absolute())
        return replace(row, changes={**row.changes, "teacher": Spec("classes", {"file": path})})

    @property
    def changed(self) -> str:
        """Which settings are others than the table's, as people write them; nothing if none is."""
        return ", ".join(f"{name}={value}" for name, value in self.changes.items())

    def options_of(self, row: Row) -> TrainOptions:
        """How a row is trained, but for the weight that is yet to be chosen."""
        return options_of(row, self.scale, self.data, self.changes)

    def kept(self, name: str) -> dict[str, float]:
        """What was chosen or measured so far."""
        return read_mapping(self.out / name) if (self.out / name).exists() else {}

    def keep(self, name: str, key: str, value: float) -> None:
        """Add to it. Other processes wait meanwhile, so that none loses anything."""
        self.out.mkdir(parents=True, exist_ok=True)
        with FileLock(self.out / f".{name}.lock"):
            write_json(self.out / name, {**self.kept(name), key: value})


def options_of(row: Row, scale: Scale, data: str, changed: Mapping[str, Any] = MappingProxyType({})) -> TrainOptions:
    """How a row is trained at a scale, with some settings changed, but for the weight that is yet to be chosen."""
    options, changes = preset(row.preset, data, **{**row.changes, **SCALES[scale], **changed}), SETTINGS.get(scale, {})
    options = options.replace(preset=row.preset)  # the row's, whatever its parts: by it times, weights and runs are known
    for kind, table in (("system", SYSTEMS), ("targets", TARGETS)):
        for name, setting in table.settings(getattr(options, kind).name).items():
            if name in changes:
                part = getattr(options, kind)
                options = options.replace(**{kind: part.with_setting(name, changes[name](part.settings.get(name, setting.default)))})
    if scale == "small" and chooses_weight(row, scale, options):
        return options.replace(weight=CHOICE[1])  # until one is chosen, so that runs and times are known by the same name
    return options


def chooses_weight(row: Row, scale: Scale, options: TrainOptions) -> bool:
    """Whether a row's weight is left to held-out classes. In heads it is that of S2SD's authors."""
    if scale == "small":
        return "weight" not in row.changes and options.teacher.name != "none"
    return scale == "paper" and row.searched


def reproduce(asked: Reproduction, show: bool = True) -> None:
    """Train what the table asks for and has not got; each finished run becomes a line of `results.jsonl`."""
    rows = [row for row in asked.rows.values() if asked.only in (None, row.name)]
    for name in asked.without if asked.only is None else ():
        tell(show, f"{name} is left out: it learns from a file of similarities between the classes, which --similarities FILE names")
    check_data(asked)
    options = {row.name: settled(asked, row, show) for row in rows}
    done, plan = records(asked.out), {}
    for seed in range(asked.seeds):  # seed by seed, so that rows are measured side by side
        for name, chosen in options.items():
            one = with_seed(chosen, seed)
            if find(done, one) is None:
                plan[name, seed] = one.replace(out=str(asked.out / "runs" / _key(chosen) / f"seed-{seed}"))
    carry_out(plan, asked.jobs, show, lambda key: _append(asked.out, key[0], plan[key]))
    measure_times(asked, rows, show)


def measure_times(asked: Reproduction, rows: Sequence[Row], show: bool = True) -> None:
    """How long each row takes beside the one that it is compared with, unless that is known: steps of both, taking turns."""
    for row in rows:
        if row.against is not None and time_key(asked, row) not in asked.kept(TIMES):
            tell(show, f"measuring the time of {row.name} beside {row.against}")
            own, other = _both(asked, row)
            asked.keep(TIMES, time_key(asked, row), round(relative_time(own, other, TURNS[asked.scale]), 4))


def time_key(asked: Reproduction, row: Row) -> str:
    """The two trainings by what they are; a weight that is yet to be chosen changes no time."""
    return " beside ".join(map(_key, _both(asked, row)))


def _both(asked: Reproduction, row: Row) -> list[TrainOptions]:
    """A row and, if there is one, the row that it is compared with."""
    return [asked.options_of(asked.rows[name]) for name in (row.name, row.against) if name]


def check_data(asked: Reproduction) -> None:
    """Rows of a table are compared: what is there must be of the same data."""
    first = next(iter(asked.rows.values()))
    now = data_record(collection_of(asked.options_of(first)))
    for record in records(asked.out):
        if record["options"]["data"] == asked.data and record.get("data", now) != now:
            raise InputError(f"{asked.out / RESULTS} holds runs on other data than {asked.data} holds now; choose another out")


def with_seed(options: TrainOptions, seed: int) -> TrainOptions:
    """The untrained reference is the same for every seed: the first one scores it."""
    return options.replace(seed=seed, reference=options.reference and seed == 0)


def settled(asked: Reproduction, row: Row, show: bool = True) -> TrainOptions:
    """A row's options with its weight: the paper's, or the best of a few on held-out training classes."""
    options = asked.options_of(row)
    if not chooses_weight(row, asked.scale, options):
        return options
    plain, key = _searched(options)
    candidates = {f"weight-{weight:g}": plain.replace(weight=weight) for weight in CHOICE}
    best, *_ = search(candidates, FOLDS, [SEARCH_SEED], asked.out / "search" / key, jobs=asked.jobs, show=show)
    weight = candidates[best].weight
    asked.keep(CHOSEN, key, weight)
    return options.replace(weight=weight)


def settled_before(asked: Reproduction, row: Row) -> TrainOptions | None:
    """The same without a training; None if the weight is yet to be chosen."""
    options = asked.options_of(row)
    if not chooses_weight(row, asked.scale, options):
        return options
    weight = asked.kept(CHOSEN).get(_searched(options)[1])
    return None if weight is None else options.replace(weight=weight)


def _searched(options: TrainOptions) -> tuple[TrainOptions, str]:
    """What is trained to choose a weight, and what it is called."""
    plain = options.replace(reference=False, label_noise=0.0)
    return plain, _key(plain)


def _key(options: TrainOptions) -> str:
    """A folder's name that says what is trained there: rows of several tables that are the same training share it. Of what differs from the
    defaults, so that a later version with more options knows it again."""
    usual = TrainOptions(options.data).identity()
    settings = {
        name: value for name, value in options.identity().items() if name == "data" or (name != "seed" and value != usual.get(name))
    }
    if options.preset != TrainOptions.preset:  # which changes no number
        settings["preset"] = options.preset
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=4).hexdigest()
    return f"{options.preset}-{digest}"


def records(out: Path) -> list[dict[str, Any]]:
    """The finished runs; one whose line was cut off is read again."""
    lines = read_lines(out / RESULTS)
    for line in lines:
        check_format(out / RESULTS, "list of results", line, FORMAT, "move it away: the same obdsd reproduce writes it anew of the runs")
    return [{**line, "options": {**line["options"], "data": data_name(line["options"]["data"])}} for line in lines]


def find(done: Sequence[Mapping[str, Any]], options: TrainOptions) -> Mapping[str, Any] | None:
    """The latest record of a training with these options."""
    wanted = options.identity()
    usual = TrainOptions(options.data).identity()  # also of options that came after the record
    return next((record for record in reversed(done) if wanted.items() <= {**usual, **record["options"]}.items()), None)


def _append(out: Path, name: str, options: TrainOptions) -> None:
    run = RunRecord.read(str(options.out))
    record: dict[str, Any] = {"format": FORMAT, "row": name, "run": str(run.folder.relative_to(out)), "options": options.identity()}
    kept = ("scores", "train", "validation", "per_class", "epoch", "chosen_by", "seconds", "versions", "data")
    record |= {name: getattr(run, name) for name in kept} | {"reference": run.reference or None}
    append_line(out / RESULTS, record, "the same command goes on")
