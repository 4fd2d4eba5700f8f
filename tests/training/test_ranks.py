"""Several processes, really started: the same losses, gradients and results as one, and what happens when one is lost."""

import itertools
import json
import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from obdsd.models import Embedder
from obdsd.options import as_dict
from obdsd.presets import preset
from obdsd.training import RunRecord, train
from obdsd.training.build import with_whole_statistics
from obdsd.training.checkpoints import read_state
from tests.made_up import write_rows
from tests.models.oracle import images
from tests.started import PATIENCE, python, wait_until
from tests.training.reading import lines, rewritten
from tests.training.starting import children_of
from tests.training.teaching import ALONE, LARGER, TABLE, at
from tests.training.two_processes import one_step

HERE = Path(__file__).parent
FROZEN = {"backbone": "tiny-conv", "pretrained": "none", "frozen": True, "batch_size": 8, "head": "linear", "workers": 0, "report": False}
SMALL = {"batch_size": 16, "dim": 6, "lr": 1e-3, "device": "cpu", "weight": 20.0, "reference": False}
TWO = {**SMALL, "epochs": 2, "evaluate_every": 0}
IMAGES = {"backbone": "tiny-conv", "batchnorm": "frozen", "pretrained": "none", "batch_size": 8, "crop": 0.5, "workers": 0}
IMAGES |= {"data": "pictures"}  # instead of rows
STOPS = (0, 6, 14)  # never, or inside a generation of 8 steps
STEPS = [
    ("ms+obd-sd", {}),
    ("margin+obd-sd", {}),
    ("proxy-anchor+obd-sd", {}),
    ("ms+obd-sd-softmax", {"teacher": "memory", "ramp": "constant"}),
    ("margin+psd", {"teacher": "ema", "micro_batch": 3, "clip": 0.5}),
    ("margin+s2sd-msdf+obdp", {"system": "s2sd(widths=[8, 12], feature_weight=50.0, feature_from=0)", "micro_batch": 3}),
    ("ms+global", {"targets": "global-diffusion(omega=0.3, neighbours=9)"}),
    ("soft-triple+proxy-diffusion", {}),
    ("ms+psd", {"teacher": "knowing", "targets": "own-proxies(omega=0.5)"}),
    ("margin+psd", {"teacher": TABLE, "ramp": "constant"}),
    ("ms+psd", {"teacher": TABLE, **ALONE, "micro_batch": 3}),
    ("ms+psd", {"teacher": LARGER, **ALONE, **IMAGES, "temperature": 0.02}),
    ("ms+bar", {"targets": "affine(scale=2.0, shift=-0.5)"}),
    ("ms+psd", {"matching": "rkd", "micro_batch": 3}),
    ("ms+psd", {"matching": "plg"}),
    ("margin+psd", {"teacher": TABLE, "ramp": "constant", "matching": "cosine", "micro_batch": 3}),
    ("ms+psd", {"targets": "kernel(neighbours=3, classmates=true)", "micro_batch": 3, "temperature": 0.1}),
    ("ms+psd", {"teacher": TABLE, "ramp": "constant", "targets": "global-kernel(neighbours=5)", "temperature": 0.1}),
    ("supcon+soft-labels", {"weight": 0.5, "micro_batch": 3}),
    ("supcon+soft-labels", {"weight": 0.8, "teacher": "ema(decay=0.0)", "targets": "class-mates", "keep": "average"}),
    ("supcon+smooth-labels", {"weight": 0.5}),
    ("recall-at-k+psd", {}),
    ("contextual+psd", {"per_class": 4}),
    ("mean-field+psd", {}),
    ("epshn+psd", {"per_class": 4, "batches": "rounds"}),
    ("proxy-gml+psd", {"loss": "proxy-gml(kept=0.2)"}),
    ("proxy-anchor+psd", {"system": "drml", "head": "relational", "branches": 2, "micro_batch": 3}),
    ("ms+psd", {"system": "divide-and-conquer", "slices": 2, "head": "linear", "micro_batch": 3}),
    ("mic+psd", {"system": "mic(clusters=5)", "micro_batch": 3}),
    ("mic", {"system": "mic(clusters=5)", "at": 2}),  # a batch of clusters
    ("dcml-mdw+psd", {"head": "composed", "slices": 3, "micro_batch": 3}),
    ("diva", {"dim": 8, "system": "diva(queue=40)", "micro_batch": 3}),
    ("diva", {"dim": 8, "system": "diva(queue=40, shared=standard)", **IMAGES}),
    ("rankmi+psd", {"loss": "rankmi(width=4)", "micro_batch": 3}),
    ("pads+psd", {"system": "pads(every=1)", "steps": 3}),
    ("margin+das", {"teacher": "ema", "system": "das(low=0.5, high=2.0, constant=false)", "micro_batch": 3}),
    ("proxy-anchor+memvir", {"teacher": "ema", "system": "memvir(sets=1, gap=0, warm=0)", "micro_batch": 3, "steps": 2}),
]


def steps_of(features, pictures, teachers):
    """The steps with their data and teachers."""
    for name, changes in STEPS:
        data = pictures if "data" in changes else features
        small = SMALL if "+" in name else {option: value for option, value in SMALL.items() if option != "weight"}
        yield name, {**small, **at(teachers, changes), "data": data}


def torchrun(*words):
    return python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, *words)


def command(folder, options):
    """`obdsd train` with these options, as words."""
    file = folder / f"{Path(options.out).name}.yaml"
    file.write_text(yaml.safe_dump({name: value for name, value in as_dict(options).items() if name not in ("data", "resume")}))
    return ["train", options.data, "--config", str(file)]


def machine(folder, features):
    """A folder that one of the two processes has for itself, with the data in it."""
    folder.mkdir(parents=True)
    shutil.copy(features, folder / "rows.npz")
    return folder


def apart(folder, features):
    """Commands for two processes that have a folder each, by the name of what differs there; every run was begun by the first alone."""
    usual = {**TWO, "teacher": "frozen(teacher)", "ramp": "constant", "keep_checkpoints": True, "report": False}
    options = preset("ms+psd", "rows.npz", **usual, out="run")
    begun = {"nothing", "data"}  # the others begin anew
    for case, rank in itertools.product(("nothing", "data", "options", "file", "weights"), (0, 1)):
        here = machine(folder / case / str(rank), features)
        differs = case if rank else None
        Embedder("features", features=12, dim=5, seed=int(differs == "weights")).save(here / "teacher")
        settings = {name: value for name, value in as_dict(options).items() if name not in ("data", "resume")}
        (here / "settings.yaml").write_text(yaml.safe_dump({**settings, "lr": 0.5} if differs == "options" else settings))
        if case in begun and rank == 0:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(here)
                train(options, show=False)
            (here / "run" / "result.json").unlink()
            shutil.copytree(here / "run", here / "before")
        if differs == "data":
            rewritten(features, here / "rows.npz", embeddings=np.load(features)["embeddings"] + 1e-3 * (np.arange(12) == 3))
        if differs == "file":
            (here / "rows.npz").unlink()
    return {
        case: ["train", "rows.npz", "--config", "settings.yaml", *["--resume"] * (case in begun)]
        for case in ("nothing", "data", "options", "file", "weights")
    }


@pytest.fixture(scope="module")
def started(features, pictures, teachers, tmp_path_factory):
    """One start of two processes for all that ends well: the plan, the folder, and what was printed."""
    folder = tmp_path_factory.mktemp("two")
    odd = write_rows(folder / "odd.npz", 30, 7, 20)  # shared unevenly: every row must come back to its place
    projected = {"head": "linear", "head_init": "projection", "epochs": 2, "val_fraction": 0.3, "evaluate_every": 1, "reference": True}
    whole = preset("margin+obd-sd", odd, **{**SMALL, **projected, "report": False, "out": str(folder / "both")})
    uneven = preset("ms+psd", features, **{**TWO, "batch_size": 15, "per_class": 3, "out": str(folder / "uneven")})
    frozen = preset("ms+psd", pictures, **{**TWO, **FROZEN, "out": str(folder / "frozen")})
    images = {"frozen": False, "crop": 0.5, "micro_batch": 2, "cache": str(folder / "kept"), "cache_side": 24, "batchnorm": "frozen"}
    images["teacher_precision"] = "32"  # bfloat16 rounds a part of a batch differently
    cached = preset("ms+psd", pictures, **{**TWO, **FROZEN, **images, "out": str(folder / "cached")})
    plan = {
        "steps": [*steps_of(features, pictures, teachers)],
        "commands": [command(folder, each) for each in (whole, uneven, frozen, cached)],
        "stopped": [("ms+bar+obdp", {"data": "rows.npz", **TWO, "out": "run"}, step) for step in STOPS],
        "apart": apart(folder, features),
    }
    for step, rank in itertools.product(STOPS, (0, 1)):
        machine(folder / f"stopped-{step}" / str(rank), features)
    (folder / "plan.json").write_text(json.dumps(plan))
    with torchrun(HERE / "two_processes.py", folder / "plan.json") as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return plan, folder, out, err, {"both": whole, "frozen": frozen, "cached": cached}


@pytest.mark.parametrize("number", range(len(STEPS)), ids=[name for name, _ in STEPS])
def test_loss_and_gradients_are_those_of_one_process(started, number):
    """Multi-Similarity, Margin with its β, losses with proxies; memory, EMA and S2SD's heads as teachers; the global and the proxies'
    manifold; small chunks of the batch; soft labels; a running average; networks that learn beside."""
    plan, folder, *_ = started
    name, options = plan["steps"][number]
    alone = one_step(name, options)
    for rank in (0, 1):
        there = torch.load(folder / f"{number}-rank-{rank}.pt", weights_only=True)
        assert there.keys() == alone.keys()
        for key, value in alone.items():
            largest = float(value.float().abs().max() or 1)
            torch.testing.assert_close(there[key], value, rtol=1e-5, atol=1e-5 * largest, msg=f"{name}: {key}")
    assert float(alone["distillation"]) > 0 or options.get("teacher") == "memory" or "+" not in name
    trains = name.startswith(("margin", "proxy", "soft", "mean", "pads", "mic", "dcml", "diva")) and "at" not in options
    assert any(key.startswith("gradient objective.") for key in alone) == trains


def close(one, other):
    """The same numbers within rounding, wherever they are."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one.keys() - {"seconds", "model"}:  # the digest of a model is not rounded
            close(one[key], other[key])
    elif isinstance(one, list):
        for pair in zip(one, other, strict=True):
            close(*pair)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)
    else:
        assert one == other


def assert_close_runs(one, other):
    for file in ("result.json", "per_class.json"):
        close(*(json.loads((Path(folder) / file).read_text()) for folder in (one, other)))
    close(lines(one), lines(other))


@pytest.mark.parametrize("name", ["both", "frozen", "cached"])
def test_two_processes_come_to_the_same_metrics(started, tmp_path, name):
    """A whole training, a head on frozen features and images from a cache, which both processes need at once."""
    _, folder, out, err, options = started
    alone = train(options[name].replace(out=str(tmp_path / "alone"), cache=None), show=False)
    assert out.count("  trained:") == 4  # of four commands: the first process speaks
    assert "Traceback" not in err
    both = RunRecord.read(folder / name)
    assert bool(both.reference) == (name == "both")
    assert (alone.processes, both.processes) == (1, 2)
    assert_close_runs(alone.folder, both.folder)


def test_a_batch_must_be_shared_evenly(started):
    _, folder, _, err, _ = started
    codes = [[(folder / f"code-{number}-rank-{rank}").read_text() for rank in (0, 1)] for number in range(4)]
    assert codes == [["0", "0"], ["2", "2"], ["0", "0"], ["0", "0"]]
    assert err.count("obdsd: --batch-size 15 must be a multiple of the 2 processes that share it") == 1  # the first process's line
    assert not (folder / "uneven").exists()


def test_both_generations_are_trained_by_both_processes_and_go_on_in_either(started, features, tmp_path):
    _, folder, *_ = started
    alone = train(preset("ms+bar+obdp", features, **TWO, out=str(tmp_path / "alone")), show=False)
    whole = folder / "stopped-0" / "0" / "run"
    assert_close_runs(alone.folder, whole)
    assert RunRecord.read(whole).processes == RunRecord.read(whole / "first").processes == 2
    for step in (6, 14):
        for part in (".", "first"):
            one, other = (run / part / "model" / "model.safetensors" for run in (whole, folder / f"stopped-{step}" / "0" / "run"))
            assert one.read_bytes() == other.read_bytes(), (step, part)
        assert os.listdir(folder / f"stopped-{step}" / "1") == ["rows.npz"]  # the other process needs none of the run's files


REMEDY = "start all with the same version, options and data"
DIFFERENCES = {
    "data": rf"data: train is 72 items, fingerprint \w+ in process 0 and 72 items, fingerprint \w+ in process 1; {REMEDY}",
    "options": rf"lr is 0\.001 in process 0 and 0\.5 in process 1; {REMEDY}",
    "file": r"process 1: rows\.npz: no such file; check the path",
    "weights": rf"the weights' digest is \w+ in process 0 and \w+ in process 1; {REMEDY}",
}


@pytest.mark.parametrize("case", DIFFERENCES)
def test_processes_that_differ_all_end_with_one_line_that_says_in_what(started, case):
    """Each on a machine of its own, as two nodes without a shared disk. Nothing that was there before is touched."""
    _, folder, *_ = started
    for rank, name in {"0": "obdsd", "1": "obdsd, process 1"}.items():
        assert (folder / case / rank / "code").read_text() == "2"
        assert re.fullmatch(rf"{name}: {DIFFERENCES[case]}\n", (folder / case / rank / "said").read_text())
    if case == "data":
        one, other = (folder / case / "0" / run / "checkpoints" / "last.pt" for run in ("before", "run"))
        assert one.read_bytes() == other.read_bytes()
    assert not (folder / case / "1" / "run").exists()


def test_the_first_process_reads_the_checkpoint_and_tells_the_others(started):
    _, folder, *_ = started
    assert [(folder / "nothing" / rank / "code").read_text() for rank in ("0", "1")] == ["0", "0"]
    assert len(RunRecord.read(folder / "nothing" / "0" / "run").metrics) == 2
    assert not (folder / "nothing" / "1" / "run").exists()


def test_the_processes_are_not_connected_any_more_when_python_ends(started):
    """gloo's threads would abort some of them, now and then."""
    _, folder, *_ = started
    assert [(folder / f"connected-{rank}").read_text() for rank in (0, 1)] == ["False", "False"]


def written_at(file):
    """When; None between its old name and its new one."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def test_a_lost_process_ends_the_others_and_the_run_goes_on_with_any_number(features, tmp_path):
    """One of two is killed; later both are asked to end; then one process finishes what two began."""
    epochs = 20
    often = {**TWO, "epochs": epochs, "checkpoint_steps": 2, "report": False}
    options = preset("ms+obd-sd", features, **often, out=str(tmp_path / "run"))
    last, words = tmp_path / "run" / "checkpoints" / "last.pt", ["-m", "obdsd", *command(tmp_path, options)]
    with torchrun(*words) as process:
        wait_until(last.exists, process)
        os.kill(children_of(process)[-1], signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode != 0
        # torchrun asks the other to end, which it may hear first
        lost, asked = "another process of the training was lost; --resume goes on from the last checkpoint", "terminated"
        ends = [f"obdsd: {reason}" for reason in (lost, asked) if f"obdsd: {reason}" in err]
        assert ends, err
        assert 'File "' not in err.split(ends[0])[0]  # no traceback of ours
    first = read_state(last)["place"]["epoch"]
    assert first < epochs
    with torchrun(*words, "--resume") as process:
        before = written_at(last)
        wait_until(lambda: written_at(last) not in (None, before), process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
        assert process.returncode != 0
    assert read_state(last)["place"]["epoch"] >= first
    record = train(options.replace(resume=True), show=False)
    whole = train(options.replace(out=str(tmp_path / "whole")), show=False)
    assert record.scores["recall@1"] == pytest.approx(whole.scores["recall@1"], abs=0.05)
    assert [line["epoch"] for line in record.metrics] == list(range(epochs))


@pytest.mark.parametrize("backbone", ["tf_efficientnet_lite0", "resnetv2_18d", "tiny-conv"])
def test_a_network_whose_statistics_are_shared_computes_what_it_did(backbone):
    """On GPUs, that is. timm's BatchNorm may hold the activation after it, which torch's own converter loses."""
    model = Embedder(backbone, dim=8, size=None if backbone == "tiny-conv" else 64, pretrained="none", batchnorm="train").eval()
    inputs = images(3, model.preprocessing.size)
    before = model(inputs).detach()
    shared = with_whole_statistics(model, 0, 2, torch.device("cuda"))
    norms = [module for module in shared.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    assert norms
    assert all(isinstance(norm, torch.nn.SyncBatchNorm) for norm in norms)
    assert torch.equal(shared(inputs).detach(), before)
