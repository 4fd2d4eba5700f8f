"""A run on disk: config.yaml, run.json, reference.json, metrics.jsonl, checkpoints/, model/, per_class.json and result.json.

Nothing else holds state.
"""

from __future__ import annotations

import dataclasses
import io
import json
import pickle
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from obdsd.errors import InputError
from obdsd.evaluation import Scores
from obdsd.evaluation.scores import PerClass
from obdsd.files import read_mapping, replacing, write_json
from obdsd.models import Embedder
from obdsd.settings import TrainOptions

FORMAT = 1
PACKAGES = ("obdsd", "torch", "timm", "pytorch-metric-learning", "lightning", "faiss-cpu", "numpy")
OF_THE_MACHINE = ("out", "resume", "device", "workers", "logger")
"""Options that may differ when a run goes on: they do not change what is computed, or only within rounding."""


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
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.result_file = path / "result.json"
        self.metrics_file = path / "metrics.jsonl"
        self.reference_file = path / "reference.json"
        self.last, self.best = path / "checkpoints" / "last.pt", path / "checkpoints" / "best.pt"

    def begin(self, options: TrainOptions, data: dict[str, Any]) -> None:
        """Claim the folder for a new run; one that holds a run already is refused."""
        if (self.path / "config.yaml").exists():
            raise InputError(f"out={self.path} holds a run already; add --resume to go on with it, or choose another folder")
        versions = {package: version(package) for package in PACKAGES}
        write_json(self.path / "run.json", {"format": FORMAT, "versions": versions, "data": data})
        with replacing(self.path / "config.yaml") as file:
            settings = {name: value for name, value in dataclasses.asdict(options).items() if name != "resume"}
            file.write(yaml.safe_dump(settings, sort_keys=False).encode())

    def resume(self, options: TrainOptions, data: dict[str, Any]) -> dict[str, Any] | None:
        """The state after the last finished epoch, or None if none was finished; a run that is not this one is refused."""
        if not (self.path / "config.yaml").exists():
            raise InputError(f"out={self.path} holds no run to resume; leave --resume out to begin one")
        if self.result_file.exists():
            raise InputError(f"out={self.path} is finished; nothing is left to resume, see {self.result_file.name} there")
        self._check_same(options, data)
        state = read_state(self.last) if self.last.exists() else None
        if state is not None and not isinstance(state.get("epoch"), int):
            raise InputError(f"{self.last}: is no checkpoint of a training; begin a new run")
        lines = [line for line in self.metrics() if state and line["epoch"] <= state["epoch"]]
        with replacing(self.metrics_file) as file:  # lines of an epoch whose checkpoint was not written
            file.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        return state

    def _check_same(self, options: TrainOptions, data: dict[str, Any]) -> None:
        before = read_mapping(self.path / "config.yaml")
        now = {name: value for name, value in dataclasses.asdict(options).items() if name != "resume"}
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

    def reference(self) -> dict[str, Any] | None:
        """The scores of what was there before the training, if they were asked for."""
        return read_mapping(self.reference_file) if self.reference_file.exists() else None

    def finish(self, record: dict[str, Any], per_class: PerClass) -> None:
        """The scores of each class, then the result, which says that the run is complete."""
        classes = {
            "labels": [str(label) for label in per_class.labels],
            "queries": per_class.queries.tolist(),
            "recall": {str(k): np.round(values, 6).tolist() for k, values in per_class.recall.items()},
            "map_at_r": np.round(per_class.map_at_r, 6).tolist(),
        }
        write_json(self.path / "per_class.json", classes)
        write_json(self.result_file, record)

    def append(self, line: dict[str, Any]) -> None:
        try:
            with open(self.metrics_file, "a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")
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


def write_state(path: Path, state: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with replacing(path) as file:
        file.write(buffer.getbuffer())


def read_state(path: Path) -> dict[str, Any]:
    """A checkpoint; nothing in it is executed."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, KeyError, ValueError, OSError, pickle.UnpicklingError) as damage:
        raise InputError(f"{path}: is damaged or no checkpoint ({' '.join(str(damage).split())[:120]}); begin a new run") from damage
