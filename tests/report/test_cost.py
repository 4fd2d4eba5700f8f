"""What a step costs, and that measuring it changes nothing."""

import json
from pathlib import Path

import numpy as np
import torch

from obdsd.report import gather
from obdsd.report.cost import _peak_mib


def test_a_step_is_measured_and_nothing_else_changes(compared, content):
    """All that is gathered again is the same, and so are the files of the runs."""
    before = {file: file.read_bytes() for file in compared.rglob("*") if file.is_file() and file.name != "report.html"}
    again = gather([compared], device="cpu")
    assert {file: file.read_bytes() for file in before} == before
    for one, two in zip(content.runs, again.runs, strict=True):
        np.testing.assert_array_equal(one.neighbours.indices, two.neighbours.indices)
        np.testing.assert_array_equal(one.map, two.map)
        np.testing.assert_array_equal(one.batch.matrices[-1].values, two.batch.matrices[-1].values)
        assert one.geometry == two.geometry
    for run in content.runs:
        assert run.cost.seconds > 0
        assert run.cost.memory_mib is None  # the CPU does not tell
        assert run.training_seconds == json.loads((Path(run.folder) / "result.json").read_text())["seconds"]
    assert (content.runs[0].cost.teacher, content.runs[0].cost.targets) == (0, 0)
    assert content.runs[1].cost.teacher > 0
    assert content.runs[1].cost.targets > 0


def test_on_a_gpu_the_peak_is_that_of_the_step(monkeypatch):
    peak = {"bytes": 9 * 2**20}
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: peak.update(bytes=0))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peak["bytes"])
    assert _peak_mib(lambda: peak.update(bytes=3 * 2**20), torch.device("cuda")) == 3
    assert _peak_mib(lambda: None, torch.device("cpu")) is None
