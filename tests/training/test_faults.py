"""A training that is killed again and again ends as one that never was: real processes, real signals.

`OBDSD_KILLS` says how often each is killed; `make test-faults` says 20.
"""

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import obdsd
from obdsd.errors import InputError
from obdsd.experiments import compare
from obdsd.presets import preset
from obdsd.training import train
from obdsd.training.checkpoints import read_state
from tests.made_up import write_rows

KILLS = int(os.environ.get("OBDSD_KILLS", "3"))
CLOCK = ("seconds", "items_per_second")

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["obdsd.training", "obdsd.experiments"])


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("rows") / "rows.npz", 30, 8, 20)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """16 classes × 6 images of noise around a picture of their own."""
    folder, generator = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for c in range(16):
        (folder / f"c{c}").mkdir()
        own = generator.integers(0, 255, (32, 32, 3))
        for i in range(6):
            pixels = np.clip(own + generator.normal(0, 40, own.shape), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"c{c}" / f"{i}.png")
    return f"folder:{folder}"


def long_training(data, out, name="ms+obd-sd", **changes):
    """Every epoch evaluated on all there is, a checkpoint every second step: a kill falls into any of it."""
    usual = {"epochs": 20 * KILLS + 40, "batch_size": 16, "dim": 6, "lr": 1e-3, "val_fraction": 0.3, "evaluate_every": 1, "test_every": 1}
    usual |= {"select": "best", "checkpoint_steps": 2, "device": "cpu", "weight": 10.0}
    return preset(name, data, **{**usual, "out": str(out), **changes})


class Command:
    """`obdsd train` with these options, as a user starts it."""

    def __init__(self, options):
        file = Path(options.out).with_suffix(".yaml")
        file.write_text(yaml.safe_dump({name: value for name, value in asdict(options).items() if name not in ("data", "resume")}))
        words = [sys.executable, "-m", "obdsd", "train", options.data, "--config", str(file), *["--resume"] * options.resume]
        environment = {**os.environ, "PYTHONPATH": str(Path(obdsd.__file__).parents[1])}
        self.process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.kill = self.process.kill

    def join(self, seconds=None):
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    @property
    def exitcode(self):
        return self.process.poll()


def start(options):
    again = (Path(options.out) / "config.yaml").exists()
    if options.workers:  # a process of multiprocessing would start its loader's in an unusual way
        return Command(replace(options, resume=again))
    process = processes.Process(target=train, args=(replace(options, resume=again),), kwargs={"show": False})
    process.start()
    return process


def to_the_end(options):
    process = start(options)
    process.join()
    assert process.exitcode == 0


def killed_at_random(options, kills, moments, span=(0.05, 0.9)):
    """Kill the training `kills` times, within that many seconds of its start, then let it end. Says how often it really was killed."""
    done = 0
    while done < kills:
        process = start(options)
        process.join(moments.uniform(*span))
        if process.exitcode is not None:
            assert process.exitcode == 0
            break
        process.kill()
        process.join()
        done += 1
    else:
        to_the_end(options)
    print(f"killed {done} times")
    return done


def what_remains(out):
    """The run without what a clock said: weights as bytes, lines in their order, the result, the scores of each class."""
    lines = [{k: v for k, v in json.loads(line).items() if k not in CLOCK} for line in (out / "metrics.jsonl").read_text().splitlines()]
    result = {k: v for k, v in json.loads((out / "result.json").read_text()).items() if k not in CLOCK}
    return (out / "model" / "model.safetensors").read_bytes(), lines, result, (out / "per_class.json").read_bytes()


def assert_same_end(first, second):
    for one, other in zip(what_remains(Path(first.out)), what_remains(Path(second.out)), strict=True):
        assert one == other


SYSTEMS = {
    "previous-epoch": {},
    "ema": {"teacher": "ema", "ramp": "constant"},
    "memory": {"teacher": "memory", "ramp": "constant", "optimizer": "adamw", "schedule": "cosine"},
    "margin": {"name": "margin+obd-sd", "objective_lr": 0.01},
    "proxies": {"name": "proxy-anchor+proxy-diffusion"},
    "born again": {"name": "ms+bar+obdp"},
    "heads": {"name": "margin+s2sd-msdf", "heads": "8,12", "feature_from": 40},
    "global manifold": {"name": "ms+global", "neighbours": 7},
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_killed_at_random_moments(rows, tmp_path, system):
    whole, broken = (long_training(rows, tmp_path / name, **SYSTEMS[system]) for name in ("whole", "broken"))
    to_the_end(whole)
    assert killed_at_random(broken, KILLS, random.Random(system)) > KILLS // 2
    assert_same_end(whole, broken)
    if system == "margin":  # β has moved, and its steps are in the state
        assert read_state(tmp_path / "broken" / "checkpoints" / "last.pt")["objective"]["loss.beta"].std() > 0


@pytest.mark.parametrize("workers", [0, 2])
def test_killed_with_images_and_loader_processes(pictures, tmp_path, workers):
    settings = {
        "backbone": "tiny-conv",
        "batchnorm": "train",
        "crop": 0.7,
        "workers": workers,
        "epochs": 3 * KILLS,
        "test_every": 0,
        "batch_size": 8,
    }
    whole, broken = (long_training(pictures, tmp_path / name, **settings) for name in ("whole", "broken"))
    to_the_end(whole)
    assert killed_at_random(broken, KILLS, random.Random(workers), (2.5, 6) if workers else (0.05, 0.9)) > 0
    assert_same_end(whole, broken)


def test_killed_while_a_checkpoint_is_written(rows, tmp_path):
    whole, broken = (long_training(rows, tmp_path / name) for name in ("whole", "broken"))
    to_the_end(whole)
    folder, hits = tmp_path / "broken" / "checkpoints", 0
    for _ in range(KILLS):
        process = start(broken)
        while process.is_alive() and not (writing := list(folder.glob(".last.pt.*"))):
            pass
        process.kill()
        process.join()
        hits += bool(writing) and any(path.exists() for path in writing)  # left behind: the kill was in time
    print(f"killed {KILLS} times, {hits} of them while the file was there under its temporary name")
    assert hits > 0
    to_the_end(broken)
    assert_same_end(whole, broken)
    assert not list(folder.glob(".last.pt.*"))


def stopped_midway(options):
    """A training that was asked to end after a few epochs, inside one; its exit code."""
    process = start(options)
    while len((Path(options.out) / "metrics.jsonl").read_text().splitlines() if (Path(options.out) / "metrics.jsonl").exists() else []) < 3:
        assert process.is_alive()
    os.kill(process.pid, signal.SIGTERM)
    process.join()
    return process.exitcode


def test_sigterm_finishes_the_step_and_exits_75(rows, tmp_path):
    whole, broken = (long_training(rows, tmp_path / name, checkpoint_steps=0, checkpoint_minutes=0) for name in ("whole", "broken"))
    to_the_end(whole)
    assert stopped_midway(broken) == 75
    written = read_state(tmp_path / "broken" / "checkpoints" / "last.pt")
    assert written["epoch"] >= 3
    to_the_end(broken)
    assert_same_end(whole, broken)


DAMAGE = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "a flipped bit": lambda content: content[:2000] + bytes([content[2000] ^ 4]) + content[2001:],
    "a flipped bit of the checksum": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(rows, tmp_path, capsys, damage):
    whole, broken = (long_training(rows, tmp_path / name, epochs=8) for name in ("whole", "broken"))
    to_the_end(whole)
    stopped_midway(broken)
    last = tmp_path / "broken" / "checkpoints" / "last.pt"
    last.write_bytes(DAMAGE[damage](last.read_bytes()))
    train(replace(broken, resume=True))
    assert "last.pt: is damaged or no checkpoint" in capsys.readouterr().err
    assert_same_end(whole, broken)


def fill(ballast):
    with open(ballast, "wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1024)):
            pass


def test_a_full_disk_keeps_the_last_good_state(rows, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("a small disk can be mounted by root only")
    try:
        whole, broken = long_training(rows, tmp_path / "whole", epochs=8), long_training(rows, disk / "run", epochs=8)
        to_the_end(whole)
        stopped_midway(broken)
        fill(disk / "ballast")
        with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
            train(replace(broken, resume=True), show=False)
        (disk / "ballast").unlink()
        to_the_end(broken)
        assert_same_end(whole, broken)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_two_trainings_do_not_share_a_folder(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("obdsd.training.runs.LOCK_SECONDS", 0.1)
    options = long_training(rows, tmp_path / "run")
    process = start(options)
    while not (tmp_path / "run" / "checkpoints" / "last.pt").exists():
        assert process.is_alive()
    with pytest.raises(InputError, match=r"out=.*run is being trained by another process; wait for it, or stop it"):
        train(replace(options, resume=True), show=False)
    process.kill()
    process.join()
    to_the_end(options)


def test_a_comparison_survives_the_same(rows, tmp_path):
    rows_of = {name: long_training(rows, "", preset_name, epochs=60) for name, preset_name in (("ms", "ms"), ("ours", "ms+obd-sd"))}
    moments = random.Random(0)

    def begin(out):
        process = processes.Process(target=compare, args=(rows_of, [0, 1], out), kwargs={"jobs": 2, "show": False})
        process.start()
        return process

    whole = begin(tmp_path / "whole")
    for _ in range(max(2, KILLS // 4)):
        broken = begin(tmp_path / "broken")
        broken.join(moments.uniform(6, 14))
        broken.kill()
        broken.join()
    broken = begin(tmp_path / "broken")
    broken.join()
    whole.join()
    assert (whole.exitcode, broken.exitcode) == (0, 0)
    for name in rows_of:
        for seed in (0, 1):
            assert_same_end(*(replace(rows_of[name], out=str(tmp_path / side / name / f"seed-{seed}")) for side in ("whole", "broken")))


def test_a_comparison_asked_to_end_takes_its_runs_along(rows, tmp_path):
    rows_of = {name: long_training(rows, "", preset_name, epochs=4000) for name, preset_name in (("ms", "ms"), ("ours", "ms+obd-sd"))}
    process = processes.Process(target=compare, args=(rows_of, [0, 1], tmp_path / "all"), kwargs={"jobs": 2, "show": False})
    process.start()
    while len(list(tmp_path.glob("all/*/*/metrics.jsonl"))) < 2:  # an epoch of each is done
        assert process.is_alive()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 75
    for folder in tmp_path.glob("all/*/*"):  # nobody trains on: the locks are free
        shutil.copytree(folder, tmp_path / "copy" / folder.parent.name / folder.name)
    time.sleep(1)
    for folder in tmp_path.glob("all/*/*"):
        assert (folder / "metrics.jsonl").read_bytes() == (
            tmp_path / "copy" / folder.parent.name / folder.name / "metrics.jsonl"
        ).read_bytes()
