"""A run on disk: config.yaml, run.json, reference.json, metrics.jsonl, checkpoints/, model/, rows.npz, per_class.json and result.json.

Nothing else holds state.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import yaml
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from obdsd.errors import FinishedError, InputError
from obdsd.evaluation import Scores
from obdsd.evaluation.scores import PerClass
from obdsd.files import read_mapping, replacing, write_json
from obdsd.models import Embedder
from obdsd.settings import TrainOptions
from obdsd.training.checkpoints import Checkpoints, write_state

FORMAT = 3
LOCK_SECONDS = 10  # that a process may take to end after it was told to
OWN_FILES = ("config.yaml", "*.json", "metrics.jsonl", "*.pt", "model.safetensors", "rows.npz")
PACKAGES = ("obdsd", "torch", "timm", "pytorch-metric-learning", "lightning", "faiss-cpu", "numpy")
OF_THE_MACHINE = ("out", "resume", "device", "workers", "logger", "checkpoint_minutes", "checkpoint_steps")
"""Options that may differ when a run goes on: they do not change what is computed, or only within rounding."""
OF_THE_COMMAND = ("resume", "report")
"""Options that are no part of a run: they are not kept with it."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a training came to: the scores on test classes of the epoch that was kept, and how it was chosen."""

    folder: Path
    options: TrainOptions
    scores: Scores
    epoch: int
    chosen_by: str
    record: dict[str, Any]

    def model(self) -> Embedder:
        return Embedder.load(self.folder / "model")


class RunFolder:
    """The files of one run. Of several processes only the first `writes`; while its `with` block runs, no other run may."""

    def __init__(self, path: Path, writes: bool = True) -> None:
        self.path, self.writes = path, writes
        self.result_file = path / "result.json"
        self.metrics_file = path / "metrics.jsonl"
        self.checkpoints = Checkpoints(path / "checkpoints")
        self._lock = FileLock(path / "checkpoints" / ".lock", timeout=LOCK_SECONDS)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()

    def open(self, options: TrainOptions, data: dict[str, Any], here: dict[str, int]) -> tuple[dict[str, Any] | None, list[str]]:
        """Begin a run or go on with one: its state, None at the very beginning, and what the user should know of it.

        `here` says by how many threads and processes it is computed.
        """
        if not (options.resume and self.begun):
            self._begin(options, data, here)
            return None, [f"nothing to resume in {self.path} yet: beginning"] if options.resume else []
        self._take()
        remarks = self._check_same(options, data, here)
        if self.result_file.exists():
            raise FinishedError(f"out={self.path} is finished; nothing is left to resume, see {self.result_file.name} there")
        state, damage = self.checkpoints.read()
        if state is not None and not isinstance(state.get("epoch"), int):
            raise InputError(f"{self.checkpoints.last}: is no checkpoint of a training; begin a new run")
        if self.writes:
            lines = [line for line in self.metrics() if state and line["epoch"] < state["epoch"]]
            with replacing(self.metrics_file) as file:  # without lines of an epoch whose checkpoint was not written
                file.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        return state, remarks if damage is None else [*remarks, damage]

    @property
    def begun(self) -> bool:
        """Whether there is anything that a new run would destroy; one that failed before its first checkpoint left nothing."""
        return self.result_file.exists() or self.checkpoints.any() or (self.path / "first").exists()

    def _begin(self, options: TrainOptions, data: dict[str, Any], here: dict[str, int]) -> None:
        """Claim the folder for a new run; one that holds a run already is refused."""
        if not self.writes:
            return
        if not self.begun:
            self._take()
        if self.begun:
            raise InputError(f"out={self.path} holds a run already; add --resume to go on with it, or choose another folder")
        for left in ("reference.json", "metrics.jsonl", "failure.json"):  # by a run that failed early, perhaps on other data
            (self.path / left).unlink(missing_ok=True)
        versions = {package: version(package) for package in PACKAGES}
        self.write("run.json", {"format": FORMAT, "versions": versions, "data": data, **here})
        with replacing(self.path / "config.yaml") as file:
            settings = {name: value for name, value in dataclasses.asdict(options).items() if name not in OF_THE_COMMAND}
            file.write(yaml.safe_dump(settings, sort_keys=False).encode())

    def _take(self) -> None:
        """Two trainings in one folder would spoil both."""
        if not self.writes:
            return
        try:
            self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            for folder in (self.path, self.checkpoints.folder, self.path / "model"):
                for name in OWN_FILES:
                    for left in folder.glob(f".{name}.[0-9]*"):  # a kill kept it from getting its name
                        left.unlink()
        except Timeout:
            raise InputError(f"out={self.path} is being trained by another process; wait for it, or stop it") from None
        except OSError as failure:
            raise InputError(f"out={self.path}: cannot be written ({failure.strerror}); choose another place") from failure

    def _check_same(self, options: TrainOptions, data: dict[str, Any], here: dict[str, int]) -> list[str]:
        """Refuse another run; tell what makes this one differ by rounding."""
        before = read_mapping(self.path / "config.yaml")
        now = {name: value for name, value in dataclasses.asdict(options).items() if name not in OF_THE_COMMAND}
        differ = sorted(before.keys() ^ now.keys())
        if differ:
            raise InputError(f"out={self.path} was begun by another version of obdsd (option {differ[0]}); finish it with that version")
        for name, value in now.items():
            if name not in OF_THE_MACHINE and before[name] != value:
                raise InputError(f"{name}={value} differs from {before[name]} that the run in {self.path} began with; resume it as it was")
        record = read_mapping(self.path / "run.json")
        if record.get("format") != FORMAT:
            raise InputError(f"out={self.path} was begun by another version of obdsd; finish it with that version")
        if record.get("data") != data:
            raise InputError(f"data={options.data} changed since the run in {self.path} began; restore it, or begin a new run")
        return [
            f"the run began with {record.get(name)} {name}, now there are {number}: from here on numbers agree within rounding only"
            + (", and dropout draws others" if name == "processes" else "")
            for name, number in here.items()
            if record.get(name) != number
        ]

    def save(self, state: dict[str, Any]) -> None:
        if self.writes:
            self.checkpoints.write(state)

    def save_best(self, state: dict[str, Any]) -> None:
        if self.writes:
            write_state(self.checkpoints.best, state)

    def write(self, name: str, content: dict[str, Any]) -> None:
        if self.writes:
            write_json(self.path / name, content)

    def result(self) -> dict[str, Any]:
        """What a finished run came to."""
        return read_mapping(self.result_file)

    def reference(self) -> dict[str, Any] | None:
        """The scores of what was there before the training, if they were asked for."""
        file = self.path / "reference.json"
        return read_mapping(file) if file.exists() else None

    def finish(self, record: dict[str, Any], per_class: PerClass, model: Embedder, rows: Mapping[str, NDArray[np.float32]]) -> None:
        """The model, what it makes of each part, the scores of each class, then the result, which says that the run is complete."""
        if not self.writes:
            return
        model.save(self.path / "model")
        if rows:
            with replacing(self.path / "rows.npz") as file:
                np.savez(file, **rows)  # type: ignore[arg-type]
        classes = {
            "labels": [str(label) for label in per_class.labels],
            "queries": per_class.queries.tolist(),
            **{name: np.round(values, 6).tolist() for name, values in per_class.values.items()},
        }
        self.write("per_class.json", classes)
        self.write(self.result_file.name, record)

    def rows(self) -> dict[str, NDArray[np.float32]]:
        """What the finished model made of each part, if it was kept."""
        file = self.path / "rows.npz"
        if not file.exists():
            return {}
        try:
            with np.load(file) as kept:
                return {name: kept[name] for name in kept.files}
        except (OSError, ValueError, zipfile.BadZipFile) as damage:
            raise InputError(f"{file}: is damaged ({' '.join(str(damage).split())[:120]}); remove it, and it is computed anew") from damage

    def append(self, line: dict[str, Any]) -> None:
        if not self.writes:
            return
        try:
            with open(self.metrics_file, "a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as failure:
            raise InputError(
                f"{self.metrics_file}: cannot be written ({failure.strerror}); make room, then go on with --resume"
            ) from failure

    def metrics(self) -> list[dict[str, Any]]:
        """The lines so far; one that was cut off while it was written is left out."""
        found = []
        for line in self.metrics_file.read_text().splitlines() if self.metrics_file.exists() else []:
            with suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found

    def versions(self) -> dict[str, str]:
        """Of the packages that the run began with."""
        return read_mapping(self.path / "run.json")["versions"]
