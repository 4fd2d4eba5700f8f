"""Where the time of a training goes: a table of a few steps by stage, and their trace."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from obdsd.files import replacing
from obdsd.method.stages import PREFIX, stage

T = TypeVar("T")
WARM_UP, STEPS = 2, 8
STAGES = ("data", "teacher", "forward", "loss", "targets", "backward", "optimiser")


class Profile:
    """Looks at a few steps of one epoch and at every evaluation, and writes `profile.md` and `profile.json.gz` into a folder."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self.table_file, self.trace_file = folder / "profile.md", folder / "profile.json.gz"
        self.device = device
        self.rows: list[str] = []
        self.evaluations: list[float] = []

    def watched(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches; the steps that are taken between them are looked at, once."""
        if self.rows:
            yield from batches
            return
        accelerator = {"cuda": [ProfilerActivity.CUDA], "xpu": [ProfilerActivity.XPU]}.get(self.device.type, [])
        seconds: list[float] = []
        left = iter(batches)
        with profile(activities=[ProfilerActivity.CPU, *accelerator], schedule=schedule(wait=0, warmup=WARM_UP, active=STEPS)) as profiler:
            while True:
                since = time.perf_counter()
                with stage("data"):
                    batch = next(left, None)
                if batch is None:
                    break
                yield batch
                seconds.append(time.perf_counter() - since)
                profiler.step()
                if len(seconds) == WARM_UP + STEPS:
                    break
        if len(seconds) > WARM_UP:
            self._keep(profiler, seconds[WARM_UP:])
        yield from left

    def evaluated(self, seconds: float) -> None:
        self.evaluations.append(seconds)
        if self.rows:
            self._write()

    def _keep(self, profiler: profile, seconds: list[float]) -> None:
        with TemporaryDirectory() as folder, replacing(self.trace_file) as file:
            profiler.export_chrome_trace(f"{folder}/trace.json")
            file.write(gzip.compress(Path(folder, "trace.json").read_bytes()))
        known = {event.key: event for event in profiler.key_averages()}
        steps, whole = len(seconds), 1e3 * sum(seconds) / len(seconds)
        self.rows = [f"A step takes {whole:.1f} ms ({steps} steps, slower while they are looked at).", ""]
        self.rows += ["| stage | ms a step | of the step | on the device, ms |", "|---|---:|---:|---:|"]
        for name in STAGES:
            if (event := known.get(PREFIX + name)) is not None:
                own, device = event.cpu_time_total / 1e3 / steps, event.device_time_total / 1e3 / steps
                shown = "" if self.device.type == "cpu" else f"{device:.1f}"
                self.rows.append(f"| {name} | {own:.1f} | {100 * own / whole:.0f} % | {shown} |")
        self._write()

    def _write(self) -> None:
        notes = [
            "`data` is the wait for the next batch. `loss` holds `targets`: what the teacher teaches, and how far the model is from it."
        ]
        if self.evaluations:
            each = sum(self.evaluations) / len(self.evaluations)
            notes.append(f"An evaluation takes {each:.1f} s ({len(self.evaluations)} so far); it is not part of a step.")
        notes.append(f"`{self.trace_file.name}` is the trace of these steps; open it at ui.perfetto.dev.")
        with replacing(self.table_file) as file:
            file.write("\n".join(["# Where the time goes", *self.rows, "", *notes, ""]).encode())
