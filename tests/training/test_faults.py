"""A training that is killed again and again ends as one that never was: real processes, real signals.

`OBDSD_KILLS` says how often each is killed; `make test-faults` says 20.
"""

import os
import random
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from obdsd.errors import InputError
from obdsd.presets import preset
from obdsd.training import train
from obdsd.training.checkpoints import read_state
from tests.training.reading import assert_same_end
from tests.training.starting import children_of, start, to_the_end, wait_for_epochs
from tests.training.teaching import ALONE, LARGER, TABLE, at

KILLS = int(os.environ.get("OBDSD_KILLS", "3"))
EPOCHS = 4 * KILLS


def long_training(data, out, name="ms+obd-sd", **changes):
    """Every epoch evaluated on all there is, a checkpoint every second step: a kill falls into any of it."""
    usual = {"epochs": EPOCHS, "batch_size": 16, "dim": 6, "lr": 1e-3, "val_fraction": 0.3, "evaluate_every": 1, "test_every": 1}
    usual |= {"select": "best", "checkpoint_steps": 2, "device": "cpu"}
    usual |= {"weight": 10.0} if "+" in name and not name.endswith(("+das", "+memvir")) else {}  # those have no teacher
    return preset(name, data, **{**usual, "out": str(out), **changes})


@pytest.fixture(scope="module")
def whole(features, tmp_path_factory):
    """The folder of a training of the first system that was never stopped."""
    chosen = long_training(features, tmp_path_factory.mktemp("whole") / "run")
    to_the_end(chosen)
    return Path(chosen.out)


@pytest.fixture(scope="module")
def stopped(features, tmp_path_factory):
    """The same, asked to end inside its fourth epoch: its options and its exit code."""
    chosen = long_training(features, tmp_path_factory.mktemp("stopped") / "run", checkpoint_steps=0, checkpoint_minutes=0)
    process = start(chosen)
    assert wait_for_epochs(process, chosen.out, 3)
    os.kill(process.pid, signal.SIGTERM)
    process.join()
    return chosen, process.exitcode


def killed_at_random(options, epochs, moments):
    """Kill the training once in each `KILLS`-th of its epochs, somewhere inside an epoch, then let it end. Says how often it was killed."""
    kills, result = 0, Path(options.out) / "result.json"
    for part in range(KILLS):
        if result.exists():  # the kill before came at the very end
            break
        process = start(options)
        wait_for_epochs(process, options.out, int((part + moments.random()) * epochs / KILLS))
        process.join(moments.uniform(0, 0.15))
        assert process.exitcode in (None, 0)
        kills += process.is_alive()
        process.kill()
        process.join()
    if not result.exists():
        to_the_end(options)
    print(f"killed {kills} times")
    return kills


SYSTEMS = {
    "previous-epoch": {},
    "ema and margin": {"name": "margin+obd-sd", "teacher": "ema(decay=0.99)", "ramp": "constant", "objective_lr": 0.01},
    "memory": {"teacher": "memory", "ramp": "constant", "optimizer": "adamw", "schedule": "cosine"},
    "proxies": {"name": "proxy-anchor+proxy-diffusion"},
    "born again": {"name": "ms+bar+obdp"},
    "heads": {"name": "margin+s2sd-msdf", "system": "s2sd(widths=[8, 12], feature_weight=50.0, feature_from=12)"},
    "global manifold": {"name": "ms+global", "targets": "global-diffusion(omega=0.3, neighbours=7)"},
    "table alone": {"name": "ms+psd", "teacher": TABLE, **ALONE},
}
OF_OTHER_PAPERS = {
    "epshn": {},
    "proxy-gml": {},
    "rankmi": {},
    "norm-softmax+memvir": {"system": "memvir(sets=2, gap=1, warm=1)"},
    "margin+das": {},
    "dcml-mdw": {"head": "composed", "slices": 3},
    "div-conq": {"slices": 2, "system": "divide-and-conquer(every=2, whole_from=0.5, all_from=0.75)"},
    "drml": {"head": "relational", "branches": 2},
    "mic": {"system": "mic(clusters=5, every=2)"},
    "diva": {"dim": 24, "head": "two-layer", "system": "diva(queue=40)"},
    "pads": {"system": "pads(every=7)"},
    "ms+rcl": {},
}
SYSTEMS |= {name: {"name": name, **changes} for name, changes in OF_OTHER_PAPERS.items()}
LONG_FORM = pytest.mark.skipif(KILLS < 20, reason="each has a short test that it goes on to the same end: make test-faults kills it")


@pytest.mark.parametrize("system", [pytest.param(name, marks=LONG_FORM if name in OF_OTHER_PAPERS else ()) for name in SYSTEMS])
def test_killed_at_random_moments(features, teachers, tmp_path, whole, system):
    broken = long_training(features, tmp_path / "broken", **at(teachers, SYSTEMS[system]))
    if system != "previous-epoch":
        whole = tmp_path / "whole"
        to_the_end(broken.replace(out=str(whole)))
    generations = 2 if system in ("born again", "ms+rcl") else 1
    assert killed_at_random(broken, EPOCHS * generations, random.Random(system)) > KILLS // 2
    assert_same_end(whole, broken.out)
    if "margin" in system:  # β has moved, and its steps are in the state
        assert read_state(tmp_path / "broken" / "checkpoints" / "before.pt")["system"]["objective.loss.beta"].std() > 0


@pytest.fixture(scope="module")
def image_trainings(pictures, tmp_path_factory):
    """`options(workers)`, a training on images, and the folder of one that was never stopped: the numbers of all are the same."""
    images = {"backbone": "tiny-conv", "batchnorm": "train", "crop": 0.7, "batch_size": 6}
    images |= {"test_every": 0, "evaluate_every": 3, "val_fraction": 0.4}
    folder = tmp_path_factory.mktemp("images")

    def options(workers, name="whole", **changes):
        return long_training(pictures, folder / name, **images, workers=workers, **changes)

    to_the_end(options(0))
    return options, folder / "whole"


@pytest.mark.parametrize("workers", [0, 2])
def test_killed_with_images_and_loader_processes(image_trainings, workers):
    """Other processes load the images: the numbers stay the same."""
    options, whole = image_trainings
    broken = options(workers, f"killed-{workers}")
    assert killed_at_random(broken, EPOCHS, random.Random(workers)) > 0
    assert_same_end(whole, broken.out)


def test_killed_while_a_larger_model_teaches(image_trainings, teachers):
    """The loader's processes draw each crop for both."""
    options, _ = image_trainings
    changes = {"teacher": LARGER.format(teachers=teachers), "ramp": "constant"}
    whole, broken = (options(2, f"larger-{name}", **changes) for name in ("whole", "killed"))
    to_the_end(whole)
    assert killed_at_random(broken, EPOCHS, random.Random(7)) > 0
    assert_same_end(whole.out, broken.out)


def everybody(process):
    """SIGTERM to all processes of the job, as schedulers send it."""
    os.killpg(process.pid, signal.SIGTERM)


def one_loader(process):
    """SIGKILL to a process that loads, as the system sends it for lack of memory."""
    os.kill(children_of(process)[-1], signal.SIGKILL)


@pytest.mark.parametrize("send", [everybody, one_loader])
def test_signals_that_reach_the_loaders_processes(image_trainings, send):
    """The run ends with 75 and goes on to the same end."""
    options, whole = image_trainings
    broken, moments = options(2, send.__name__, checkpoint_steps=0, checkpoint_minutes=0), random.Random(send.__name__)
    for number in range(KILLS):
        process = start(broken)
        assert wait_for_epochs(process, broken.out, 2 + 3 * number)
        process.join(moments.uniform(0, 0.05))
        send(process)
        process.join()
        assert process.exitcode == 75
    to_the_end(broken)
    assert_same_end(whole, broken.out)


def test_killed_while_a_checkpoint_is_written(features, tmp_path, whole):
    broken = long_training(features, tmp_path / "broken")
    folder, hits = tmp_path / "broken" / "checkpoints", 0
    for number in range(KILLS):
        left = set(folder.glob(".last.pt.*"))  # by the kill before; the next write removes it
        process = start(broken)
        wait_for_epochs(process, broken.out, 2 * number)
        while process.is_alive() and not (writing := set(folder.glob(".last.pt.*")) - left):
            pass
        process.kill()
        process.join()
        hits += bool(writing) and any(path.exists() for path in writing)  # left behind: the kill was in time
    print(f"killed {KILLS} times, {hits} of them while the file was there under its temporary name")
    assert hits > 0
    if not (tmp_path / "broken" / "result.json").exists():
        to_the_end(broken)
    assert_same_end(whole, broken.out)
    assert not list(folder.glob(".last.pt.*"))


def test_sigterm_finishes_the_step_and_exits_75(stopped, whole, tmp_path):
    chosen, code = stopped
    assert code == 75
    assert read_state(Path(chosen.out) / "checkpoints" / "last.pt")["place"]["epoch"] >= 3
    shutil.copytree(chosen.out, tmp_path / "run")
    to_the_end(chosen.replace(out=str(tmp_path / "run")))
    assert_same_end(whole, tmp_path / "run")


def test_a_damaged_checkpoint_falls_back_to_the_one_before(stopped, whole, tmp_path, capsys):
    shutil.copytree(stopped[0].out, tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "last.pt"
    last.write_bytes(last.read_bytes()[:-2000])
    train(stopped[0].replace(out=str(tmp_path / "run"), resume=True))
    message = "last.pt: is damaged or no checkpoint (its checksum does not fit); going on from before.pt, which is whole"
    assert message in capsys.readouterr().err
    assert_same_end(whole, tmp_path / "run")


def fill(ballast):
    with open(ballast, "wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1024)):
            pass


def test_a_full_disk_keeps_the_last_good_state(stopped, whole, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("a small disk can be mounted by root only")
    try:
        shutil.copytree(stopped[0].out, disk / "run")
        broken = stopped[0].replace(out=str(disk / "run"))
        fill(disk / "ballast")
        with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
            train(broken.replace(resume=True), show=False)
        (disk / "ballast").unlink()
        to_the_end(broken)
        assert_same_end(whole, broken.out)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_two_trainings_do_not_share_a_folder(features, tmp_path, monkeypatch):
    monkeypatch.setattr("obdsd.training.run_folder.LOCK_SECONDS", 0.1)
    options = long_training(features, tmp_path / "run", epochs=1000)
    process = start(options)
    assert wait_for_epochs(process, options.out, 1)
    with pytest.raises(InputError, match=r"out=.*run is being trained by another process; wait for it, or stop it"):
        train(options.replace(resume=True), show=False)
    process.kill()
    process.join()
