"""A run on disk: config.yaml, run.json, reference.json, metrics.jsonl, checkpoints/, model/, rows.npz, per_class.json and result.json.

`RunFolder` writes it; `RunRecord` is what everybody reads of a finished one.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from obdsd.convert import fits
from obdsd.data import Collection, absolute_source
from obdsd.errors import FinishedError, InputError
from obdsd.files import append_line, check_format, read_lines, read_mapping, replacing, to_yaml, write_json
from obdsd.options import ARCHITECTURE, TrainOptions, hints_of
from obdsd.processes import versions
from obdsd.training.checkpoints import Checkpoints
from obdsd.training.paths import with_paths_of

if TYPE_CHECKING:  # what takes seconds to import is not needed to tell what is wrong with a folder
    from obdsd.evaluation.scores import PerClass
    from obdsd.models import Embedder

FORMAT = 6  # 4 knew image files by their sizes alone, 5 by a sample of their bytes
LOCK_SECONDS = 10  # that a process may take to end after it was told to
TRAIN_OR_COMPARE = "give the folder of a finished obdsd train or obdsd compare"


def data_record(collection: Collection) -> dict[str, Any]:
    """What tells these data from others."""
    return {name: {"items": len(part), "fingerprint": part.fingerprint()} for name, part in collection.parts.items()}


def run_path(options: TrainOptions) -> Path:
    """Where the run's folder is: `out`, or a name made of data, preset and seed."""
    if options.out is not None:
        return Path(options.out).expanduser()
    name, _, path = options.data.partition(":")
    return Path("runs") / f"{Path(path).stem or Path(name).stem}-{options.preset}-{options.seed}"


def model_digest(folder: Path) -> str:
    """Tells the weights of a run from others."""
    return hashlib.blake2b((folder / "model" / "model.safetensors").read_bytes(), digest_size=16).hexdigest()


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A finished run: how it was trained, and what it came to. Shares are in 0..1, epochs count from 0."""

    folder: Path
    options: TrainOptions
    scores: Mapping[str, float | None]  # of the epoch that was kept, on the classes that were to be scored
    per_class: Mapping[str, Sequence[Any]]  # "labels", "queries", and each metric of a query, a number a class
    train: Mapping[str, float | None]  # geometry of the training set
    validation: Mapping[str, float | None] | None  # scores on held-out classes
    reference: Mapping[str, Mapping[str, float | None]]  # scores of what was there before the training, by name
    reranked: Mapping[str, Mapping[str, float | None]]  # the same classes re-ranked, by the re-ranker
    interpolation: Mapping[str, Any] | None  # how far from the start held-out classes chose to go, and what they said of each share
    epoch: int
    chosen_by: str
    seconds: float
    metrics: Sequence[Mapping[str, Any]]  # a line an epoch
    versions: Mapping[str, str]
    data: Mapping[str, Any]  # the data record
    source: str  # where the data are, from any working directory
    threads: int
    processes: int
    device: str

    @classmethod
    def read(cls, folder: Path | str) -> RunRecord:
        """The run in a folder; one line for a folder that holds no finished run of this version."""
        path = Path(folder)
        run = RunFolder(path, writes=False)
        begun, options = run.begun_as(), run.options()
        if not run.result_file.exists():
            raise InputError(f"{path}: {run.unfinished()}")
        result, per_class = read_mapping(run.result_file), read_mapping(path / "per_class.json")
        try:
            return cls(
                folder=path,
                options=options,
                **{name: result[name] for name in ("scores", "train", "validation", "epoch", "chosen_by", "seconds", "device")},
                reference=result["reference"] or {},
                reranked=result.get("reranked", {}),  # runs before re-ranking have none
                interpolation=result.get("interpolation"),
                per_class={name: per_class[name] for name in ("labels", "queries", *per_class)},
                metrics=run.metrics(),
                **{name: begun[name] for name in ("versions", "data", "threads", "processes")},
                source=run.source(options.data),
            )
        except KeyError as missing:
            raise InputError(f"{path}: its result has no {missing}; restore it, or train it again") from missing

    def __post_init__(self) -> None:
        damaged = [name for name, kind in hints_of(RunRecord).items() if not fits(getattr(self, name), kind)]
        if not damaged and len(set(map(len, self.per_class.values()))) > 1:
            damaged = ["per_class"]
        if not damaged and not all(isinstance(line.get("epoch"), int) for line in self.metrics):
            damaged = ["metrics"]
        if damaged:
            raise InputError(f"{self.folder}: its {damaged[0]} are not what obdsd writes; restore them, or train it again")

    @property
    def last_epoch(self) -> int:
        """Counted from 0; training may have stopped before the last one that was asked for."""
        return int(self.metrics[-1]["epoch"]) if self.metrics else self.options.epochs - 1

    def model(self) -> Embedder:
        """The trained model, which must be that of this run."""
        from obdsd.models import Embedder

        model, data = Embedder.load(self.folder / "model"), {name: part["fingerprint"] for name, part in self.data.items()}
        if model.trained_on is not None and model.trained_on.parts != data:
            raise InputError(f"{self.folder / 'model'}: was trained on other data than the run that it lies in; restore it")
        return model

    def rows(self) -> dict[str, NDArray[np.float32]]:
        """What the finished model made of each part, if it was kept."""
        file = self.folder / "rows.npz"
        if not file.exists():
            return {}
        try:
            with file.open("rb") as stream, np.load(stream) as kept:
                return {name: kept[name] for name in kept.files}
        except (OSError, ValueError, EOFError, TypeError, zlib.error, zipfile.BadZipFile) as damage:  # a bare .npy is no context, too
            raise InputError(f"{file}: is damaged ({' '.join(str(damage).split())[:120]}); remove it, and it is computed anew") from damage


def as_begun(options: TrainOptions, begun: TrainOptions | None) -> TrainOptions:
    """Options that a run fitted to its data, or to the model that it began with, stay as they were when it goes on; so do its paths."""
    return with_paths_of(fitted_as_begun(options, begun), begun)


def fitted_as_begun(options: TrainOptions, begun: TrainOptions | None) -> TrainOptions:
    """The same but for its paths, which may differ from machine to machine."""
    if begun is None:
        return options
    kept = {name: value for name, value in _fitted(begun).items() if getattr(options, name) is None}
    if options.init is not None:
        kept |= {name: getattr(begun, name) for name in ARCHITECTURE}
    if begun.score == "none" and options.test_fraction == 0:
        kept["score"] = "none"
    return options.replace(**kept)


def _fitted(begun: TrainOptions) -> dict[str, Any]:
    """Options that, left out, fit the data, the model or the device, as a run began with them."""
    return {"batch_size": begun.batch_size, "channels_last": begun.channels_last, "cache_side": begun.cache_side or 0}


def check_finished(folders: Sequence[Path]) -> None:
    """Refuse folders that hold no finished run or comparison, all of them in one line."""
    runs = [RunFolder(folder, writes=False) for folder in folders if not (folder / "comparison.json").exists()]
    if faults := [f"{run.path}: {run.unfinished()}" for run in runs if not run.result_file.exists()]:
        raise InputError("; ".join(faults))


class RunFolder:
    """The files of one run. Of several processes only the first `writes`; while its `with` block runs, no other run may."""

    def __init__(self, path: Path, writes: bool = True) -> None:
        self.path, self.writes = path, writes
        self.result_file = path / "result.json"
        self.metrics_file = path / "metrics.jsonl"
        self.model = path / "model"
        self.checkpoints = Checkpoints(path / "checkpoints")
        self.is_new = False
        self._made: list[Path] = []  # folders that were not there before
        self._lock_file = path / "checkpoints" / ".lock"
        self._lock = FileLock(self._lock_file, timeout=LOCK_SECONDS)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock.is_locked and not (self.path / "run.json").exists():  # nothing came of it
            self._lock_file.unlink()
            with suppress(OSError):  # others may have put something there
                for folder in self._made:
                    folder.rmdir()
        self._lock.release(force=True)

    def claim(self, options: TrainOptions) -> None:
        """Take the folder before anything is built for it: two trainings in one would spoil both."""
        if not self.writes:
            return
        try:
            self._made = [folder for folder in (self.checkpoints.folder, *self.checkpoints.folder.parents) if not folder.exists()]
            self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise InputError(f"out={self.path} is being trained by another process; wait for it, or stop it") from None
        except OSError as failure:
            raise InputError(f"out={self.path}: cannot be written ({failure.strerror}); choose another place") from failure
        self.is_new = not self.begun
        self.check_free(options)

    def check_free(self, options: TrainOptions) -> None:
        """Refuse to begin a run where one is, unless it is to go on."""
        if self.begun and not options.resume:
            raise InputError(f"out={self.path} holds a run already; add --resume to go on with it, or choose another folder")

    def source(self, data: str) -> str:
        """Where these data are. A relative path that the run began with means what it meant there, whatever the working directory."""
        if self.begun and self.options().data == data:
            began = str(self.begun_as().get("source", data))
            relative = not Path(data.rpartition(":")[2]).expanduser().is_absolute()
            if relative and Path(began.rpartition(":")[2]).exists():
                return began
        return data

    def open(self, options: TrainOptions, data: dict[str, Any], here: dict[str, int]) -> tuple[dict[str, Any] | None, list[str]]:
        """Refuse another run than the one in a folder that was claimed. Else the state to go on from, None at the very beginning, and what
        the user should know.

        `here` says by how many threads and processes it is computed. Nothing of a new run is written before `begin`.
        """
        if self.is_new:
            return None, [f"nothing to resume in {self.path} yet: beginning"] if options.resume else []
        remarks = self._check_same(options, data, here)
        if self.result_file.exists():
            raise FinishedError(f"out={self.path} is finished; nothing is left to resume, see {self.result_file.name} there")
        state, damage = self.checkpoints.read()
        if state is not None and not (fits(state.get("place"), Mapping[str, Any]) and isinstance(state["place"].get("epoch"), int)):
            raise InputError(f"{self.checkpoints.last}: is no checkpoint of a training; begin a new run")
        lines = [line for line in self.metrics() if state and line.get("epoch") in range(state["place"]["epoch"])]
        with replacing(self.metrics_file) as file:  # without lines of an epoch whose checkpoint was not written
            file.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        return state, remarks if damage is None else [*remarks, damage]

    @property
    def begun(self) -> bool:
        """Whether there is anything that a new run would destroy; one that failed before its first checkpoint left nothing."""
        return self.result_file.exists() or self.checkpoints.any() or (self.path / "first").exists()

    def begin(self, options: TrainOptions, data: dict[str, Any], here: dict[str, int], left_out: Mapping[str, Sequence[str]]) -> None:
        """Make the folder of a new run. `left_out` names the items of each part that could not be used."""
        if not self.is_new:
            return
        for left in ("reference.json", "metrics.jsonl", "failure.json"):  # by a run that failed early, perhaps on other data
            (self.path / left).unlink(missing_ok=True)
        begun = {"format": FORMAT, "versions": versions(), "data": data, "source": absolute_source(options.data), **here}
        self.write("run.json", begun | ({"left_out": left_out} if left_out else {}))
        with replacing(self.path / "config.yaml") as file:
            file.write(to_yaml(options.kept()).encode())

    def begun_as(self) -> dict[str, Any]:
        """What run.json holds; the one place that judges whether a run is of this version."""
        if not (self.path / "run.json").exists():
            raise InputError(f"{self.path}: {self.unfinished()}")
        begun = read_mapping(self.path / "run.json")
        check_format(self.path, "run", begun, FORMAT, "use that version, or train again")
        return begun

    def threads(self) -> int | None:
        """How many the run in this folder began with, if there is one."""
        began = None if self.is_new else self.begun_as().get("threads")
        return began if isinstance(began, int) and began > 0 else None

    def options(self) -> TrainOptions:
        """How the run in this folder was begun."""
        config = read_mapping(self.path / "config.yaml")
        try:
            return TrainOptions.from_dict(config)
        except (InputError, TypeError) as fault:
            raise InputError(f"{self.path / 'config.yaml'}: {fault}") from fault

    def began_with(self) -> TrainOptions | None:
        """The options of the run that is under way here, if there is one."""
        return self.options() if self.begun and (self.path / "config.yaml").exists() else None

    def unfinished(self) -> str:
        """Why there is no finished run here, and what to do."""
        if not self.path.is_dir():
            return f"no such folder, {TRAIN_OR_COMPARE}"
        if not (self.path / "config.yaml").exists():
            if any(self.path.glob("*/seed-*/config.yaml")):
                return "the comparison is not finished (no comparison.json), the same obdsd compare goes on with it"
            return f"holds no run (no config.yaml), {TRAIN_OR_COMPARE}"
        if (self.path / "failure.json").exists():
            return f"its training failed ({read_mapping(self.path / 'failure.json').get('fault')}), train it anew"
        return "its training is not finished (no result.json), go on with it by obdsd train --resume"

    def _check_same(self, options: TrainOptions, data: dict[str, Any], here: dict[str, int]) -> list[str]:
        """Refuse another run; tell what makes this one differ by rounding."""
        begun = self.begun_as()
        self.check_options(options)
        changed = [name for name in {**begun["data"], **data} if begun["data"].get(name) != data.get(name)]
        if changed and (self.result_file.exists() or {"train", "val"} & {*changed}):
            raise InputError(f"data={options.data} changed since the run in {self.path} began; restore it, or begin a new run")
        if changed:
            self._take_over(data)
        of_test = f"{' and '.join(changed)} changed since the run began; what is there now is scored"
        return [of_test] * bool(changed) + [
            f"the run began with {begun.get(name)} {name}, now there are {number}: from here on numbers agree within rounding only"
            + (", and dropout draws others" if name == "processes" else "")
            for name, number in here.items()
            if begun.get(name) != number
        ]

    def _take_over(self, data: dict[str, Any]) -> None:
        """What is only scored may be mended while the run is not finished. What was measured on it before no longer counts."""
        self.write("run.json", {**self.begun_as(), "data": data})
        (self.path / "reference.json").unlink(missing_ok=True)

    def check_options(self, options: TrainOptions) -> None:
        """Refuse options that would make another run than the one in this folder."""
        for name, before, value in self.differences(options):
            remedy = f"train on from its model with init={self.path} and another out" if name == "epochs" else "resume it as it was"
            raise InputError(f"{name}={value} differs from {before} that the run in {self.path} began with; {remedy}")

    def differences(self, options: TrainOptions) -> Iterator[tuple[str, Any, Any]]:
        """Options that would make another run: the name, what this run began with, and what is asked for now."""
        begun, source = self.options(), self.begun_as().get("source")
        before = begun.identity()
        for name, value in as_begun(options, begun).identity().items():
            if before[name] != value and not (name == "data" and absolute_source(value) == source):
                yield name, before[name], value

    def save(self, state: dict[str, Any]) -> None:
        if self.writes:
            self.checkpoints.write(state)

    def save_best(self, epoch: int, model: dict[str, Any]) -> None:
        if self.writes:
            self.checkpoints.write_best(epoch, model)

    def write(self, name: str, content: dict[str, Any]) -> None:
        if self.writes:
            write_json(self.path / name, content)

    def reference(self) -> dict[str, Any] | None:
        """The scores of what was there before the training, if they were asked for."""
        file = self.path / "reference.json"
        return read_mapping(file) if file.exists() else None

    def finish(self, result: dict[str, Any], per_class: PerClass | None, rows: Mapping[str, NDArray[np.float32]], keep: bool) -> None:
        """What the kept model makes of each part, the scores of each class, then the result, which says that the run is complete.

        Nobody needs its checkpoints then, unless it is asked to `keep` them."""
        if not self.writes:
            return
        if rows:
            with replacing(self.path / "rows.npz") as file:
                np.savez(file, **rows)  # type: ignore[arg-type]
        by_class: dict[str, Any] = {"labels": [], "queries": []}
        if per_class is not None:
            values = {name: np.round(numbers, 6).tolist() for name, numbers in per_class.values.items()}
            by_class = {"labels": [str(label) for label in per_class.labels], "queries": per_class.queries.tolist(), **values}
        self.write("per_class.json", by_class)
        self.write(self.result_file.name, {**result, "model": model_digest(self.path)})
        if not keep:
            self.checkpoints.tidy()

    def append(self, line: dict[str, Any]) -> None:
        if self.writes:
            append_line(self.metrics_file, line, "then go on with --resume")

    def metrics(self) -> list[dict[str, Any]]:
        """The lines so far."""
        return read_lines(self.metrics_file)
