"""Several processes, really started: the same losses, gradients and results as one, and what happens when one is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

import obdsd
from obdsd.presets import preset
from obdsd.training import train
from obdsd.training.checkpoints import read_state
from tests.made_up import write_rows
from tests.training.one_step import one_step

HERE = Path(__file__).parent
SMALL = {"batch_size": 16, "dim": 6, "lr": 1e-3, "device": "cpu", "weight": 20.0, "reference": False}
STEPS = [
    ("ms+obd-sd", {}),
    ("margin+obd-sd", {}),
    ("proxy-anchor+obd-sd", {}),
    ("ms+obd-sd-softmax", {"teacher": "memory", "ramp": "constant"}),
    ("margin+psd", {"teacher": "ema", "micro_batch": 3, "clip": 0.5}),
    ("margin+s2sd-msdf+obdp", {"heads": "8,12", "feature_from": 0, "micro_batch": 3}),
    ("ms+global", {"neighbours": 9}),
    ("soft-triple+proxy-diffusion", {}),
]


@contextmanager
def torchrun(*words, processes=2):
    """The processes are gone at the end, whatever happens."""
    environment = {**os.environ, "PYTHONPATH": f"{Path(obdsd.__file__).parents[1]}:{HERE.parents[1]}", "OMP_NUM_THREADS": "1"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    process = subprocess.Popen(
        [*launcher, *map(str, words)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        try:
            yield process
        finally:
            with_children = os.getpgid(process.pid) if process.poll() is None else None
            if with_children:
                os.killpg(with_children, signal.SIGKILL)


def done(process, seconds=240):
    out, said = process.communicate(timeout=seconds)
    assert process.returncode == 0, said
    return out, said


def config(tmp_path, options):
    file = tmp_path / "options.yaml"
    file.write_text(yaml.safe_dump({name: value for name, value in vars(options).items() if name not in ("data", "resume")}))
    return ["-m", "obdsd", "train", options.data, "--config", file]


def test_loss_and_gradients_are_those_of_one_process(features, tmp_path):
    """Multi-Similarity, Margin with its β, losses with proxies; memory, EMA and S2SD's heads as teachers; the global and the proxies'
    manifold; small chunks of the batch."""
    plan = [(name, {"data": features, **SMALL, **changes}) for name, changes in STEPS]
    with torchrun(HERE / "one_step.py", json.dumps(plan), tmp_path) as process:
        done(process)
    for number, (name, options) in enumerate(plan):
        alone = one_step(name, options)
        for rank in (0, 1):
            there = torch.load(tmp_path / f"{number}-rank-{rank}.pt", weights_only=True)
            assert there.keys() == alone.keys()
            for key, value in alone.items():
                torch.testing.assert_close(there[key], value, rtol=1e-5, atol=1e-5 * float(value.abs().max() or 1), msg=f"{name}: {key}")
        assert float(alone["distillation"]) > 0 or options.get("teacher") == "memory"
        assert any(key.startswith("objective") for key in alone) == name.startswith(("margin", "proxy", "soft"))


@pytest.fixture
def two_epochs(tmp_path):
    rows = write_rows(tmp_path / "odd.npz", 30, 7, 20)  # shared unevenly: every row must come back to its place
    projected = {"head": "linear", "head_init": "projection"}
    return preset("margin+obd-sd", rows, **{**SMALL, **projected, "epochs": 2, "val_fraction": 0.3, "evaluate_every": 1, "reference": True})


def close(one, other):
    """The same numbers within rounding, wherever they are."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one.keys() - {"seconds", "items_per_second", "threads", "processes"}:
            close(one[key], other[key])
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)
    else:
        assert one == other


def test_two_processes_come_to_the_same_metrics(tmp_path, two_epochs):
    alone = train(with_changes(two_epochs, out=tmp_path / "alone"), show=False)
    with torchrun(*config(tmp_path, with_changes(two_epochs, out=tmp_path / "both"))) as process:
        out, said = done(process)
    assert out.count("  trained:") == 1  # the first process speaks
    assert "Traceback" not in said
    close(alone.record, json.loads((tmp_path / "both" / "result.json").read_text()))
    for name in ("metrics.jsonl", "per_class.json", "reference.json"):
        texts = [(tmp_path / side / name).read_text().splitlines() for side in ("alone", "both")]
        if name == "metrics.jsonl":
            for lines in zip(*texts, strict=True):
                close(*map(json.loads, lines))
        else:
            close(*(json.loads("\n".join(text)) for text in texts))
    assert json.loads((tmp_path / "both" / "result.json").read_text())["processes"] == 2


def test_both_generations_are_trained_by_both_processes(features, tmp_path):
    options = preset("ms+bar+obdp", features, **{**SMALL, "epochs": 2, "evaluate_every": 0})
    alone = train(with_changes(options, out=tmp_path / "alone"), show=False)
    with torchrun(*config(tmp_path, with_changes(options, out=tmp_path / "both"))) as process:
        _, said = done(process)
    assert "Traceback" not in said
    first, second = (json.loads((tmp_path / "both" / part / "result.json").read_text()) for part in ("first", "."))
    assert first["processes"] == second["processes"] == 2
    close(alone.record, second)


def with_changes(options, **changes):
    return replace(options, **{name: str(value) if isinstance(value, Path) else value for name, value in changes.items()})


def wait_for(path, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_lost_process_ends_the_others_and_the_run_goes_on_with_any_number(features, tmp_path):
    """One of two is killed; later both are asked to end; then one process finishes what two began."""
    usual = {**SMALL, "epochs": 120, "checkpoint_steps": 5, "evaluate_every": 0}
    options = preset("ms+obd-sd", features, **usual, out=str(tmp_path / "run"))
    last = tmp_path / "run" / "checkpoints" / "last.pt"
    with torchrun(*config(tmp_path, options)) as process:
        wait_for(last, process)
        children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        began = time.monotonic()
        os.kill(children[-1], signal.SIGKILL)
        _, said = process.communicate(timeout=60)
        assert process.returncode != 0
        assert time.monotonic() - began < 45
        assert "obdsd: another process of the training was lost; --resume goes on from the last checkpoint" in said
        assert 'File "' not in said.split("another process")[0]  # no traceback of ours
    first = read_state(last)["epoch"]
    with torchrun(*config(tmp_path, options), "--resume") as process:
        before = last.stat().st_mtime_ns
        while last.exists() and last.stat().st_mtime_ns == before:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode != 0
    assert read_state(tmp_path / "run" / "checkpoints" / "last.pt")["epoch"] >= first
    result = train(with_changes(options, resume=True), show=False)
    whole = train(with_changes(options, out=tmp_path / "whole"), show=False)
    assert result.scores["recall@1"] == pytest.approx(whole.scores["recall@1"], abs=0.05)
    epochs = [json.loads(line)["epoch"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert epochs == list(range(120))


def test_a_batch_must_be_shared_evenly(features, tmp_path):
    options = preset("ms+psd", features, **{**SMALL, "batch_size": 16, "out": str(tmp_path / "run")})
    with torchrun(*config(tmp_path, options), processes=3) as process:
        _, said = process.communicate(timeout=120)
    assert process.returncode != 0
    assert said.count("obdsd: batch_size=16 must be a multiple of the 3 processes that share it") == 1
    assert not (tmp_path / "run").exists()
