"""`obdsd train` and `obdsd compare` as a user meets them."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml

import obdsd
from obdsd import cli
from obdsd.errors import InputError
from obdsd.presets import NAMES, preset
from tests.made_up import write_rows

SMALL = ["--epochs", "2", "--batch-size", "12", "--dim", "5", "--device", "cpu", "--evaluate-every", "0"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "rows.npz", 20, 6, 12)


def config_of(capsys, *arguments):
    assert cli.main([*arguments, "--print_config"]) == 0
    return yaml.safe_load(capsys.readouterr().out)


def test_a_training_by_one_command(rows, tmp_path, capsys):
    out = tmp_path / "run"
    assert cli.main(["train", rows, "--preset", "ms+obd-sd", "--out", str(out), "--seed", "3", *SMALL]) == 0
    printed, progress = capsys.readouterr()
    record = json.loads((out / "result.json").read_text())
    assert f"R@1 {100 * record['scores']['recall@1']:.2f} %" in printed
    assert "frozen features, untrained: R@1" in printed
    assert f"model: {out / 'model'}" in printed
    assert "epoch 2/2: base" in progress
    assert record["seed"] == 3
    assert cli.main(["evaluate", str(out), rows]) == 0
    assert f"{100 * record['scores']['recall@1']:.2f}" in capsys.readouterr().out


def test_the_options_of_the_issue(rows, tmp_path, capsys):
    words = "--loss multi-similarity --teacher previous-epoch --targets batch-diffusion --omega 0.3 --weight 1000"
    found = config_of(capsys, "train", "glyphs", *words.split())
    assert (found["loss"], found["teacher"], found["targets"], found["omega"], found["weight"], found["backbone"]) == (
        "multi-similarity",
        "previous-epoch",
        "batch-diffusion",
        0.3,
        1000.0,
        "tiny-conv",
    )


def test_default_preset_config_flag(capsys, tmp_path):
    """Each counts more than the one before it, wherever --config stands."""
    file = tmp_path / "mine.yaml"
    file.write_text("omega: 0.11\nweight: 5\n")
    assert config_of(capsys, "train", "cub200:x")["weight"] == 1000.0
    assert config_of(capsys, "train", "cars196:x")["omega"] == 0.99
    found = config_of(capsys, "train", "cars196:x", "--weight", "7", "--config", str(file))
    assert (found["omega"], found["weight"], found["epochs"]) == (0.11, 7.0, 150)
    first = config_of(capsys, "train", "cars196:x", "--config", str(file), "--omega", "0.5")
    assert (first["omega"], first["weight"]) == (0.5, 5.0)


def test_a_comparisons_configuration_can_be_read_again(capsys, tmp_path):
    found = config_of(capsys, "compare", "x.npz", "--presets", "ms,ms+psd", "--epochs", "3", "--weight", "5")
    assert (found["presets"], found["epochs"], found["weight"]) == ("ms,ms+psd", 3, 5.0)
    assert "lr" not in found
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(found))
    assert config_of(capsys, "compare", "--config", str(tmp_path / "again.yaml")) == found


def test_a_run_is_evaluated_on_the_classes_that_it_did_not_see(rows, tmp_path, capsys):
    out = tmp_path / "run"
    assert cli.main(["train", rows, "--out", str(out), "--split-seed", "7", "--test-fraction", "0.4", *SMALL]) == 0
    record = json.loads((out / "result.json").read_text())
    assert cli.main(["evaluate", str(out), rows, "--out", str(tmp_path / "scores.json")]) == 0
    assert json.loads((tmp_path / "scores.json").read_text())["scores"] == pytest.approx(record["scores"])
    assert cli.main(["evaluate", str(out / "model"), rows, "--out", str(tmp_path / "same.json")]) == 0
    assert json.loads((tmp_path / "same.json").read_text())["scores"] == pytest.approx(record["scores"])
    capsys.readouterr()
    assert cli.main(["evaluate", str(out), rows, "--split-seed", "0"]) == 2
    assert "split_seed=0 is not the 7 that model=" in capsys.readouterr().err


def test_a_scheduler_needs_one_command(rows, tmp_path, capsys):
    """With --resume from the first time on: it begins, goes on, and says when all is done."""
    command = ["train", rows, "--out", str(tmp_path / "run"), "--resume", *SMALL]
    assert cli.main(command) == 0
    first = capsys.readouterr()
    assert f"nothing to resume in {tmp_path / 'run'} yet: beginning" in first.err
    assert cli.main(command) == 0
    again = capsys.readouterr()
    assert f"{tmp_path / 'run'} is finished: nothing was left to do" in again.err
    assert again.out.splitlines()[:2] == first.out.splitlines()[:2]
    assert cli.main([*command, "--weight", "3"]) == 2
    assert "weight=3.0 differs from" in capsys.readouterr().err


def test_a_folder_where_nothing_was_trained_is_no_run(tmp_path, capsys):
    """The first try failed on the data; they were mended, and the same command begins."""
    vectors = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
    labels, out = np.repeat(np.arange(10), 4), tmp_path / "run"
    np.savez(tmp_path / "rows.npz", embeddings=vectors[:, :3], labels=labels)
    command = [
        "train",
        str(tmp_path / "rows.npz"),
        "--out",
        str(out),
        "--batch-size",
        "8",
        "--dim",
        "4",
        "--epochs",
        "1",
        "--report",
        "false",
    ]
    assert cli.main([*command, "--loss", "pml:BaseMetricLossFunction"]) == 2  # its first step fails
    assert (out / "config.yaml").exists()
    np.savez(tmp_path / "rows.npz", embeddings=vectors, labels=labels)
    capsys.readouterr()
    assert cli.main(command) == 0
    assert not (out / "failure.json").exists()
    assert cli.main(command) == 2
    assert "holds a run already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("init", "advice"),
    [("random", "begin with --head linear --head_init projection"), ("projection", "choose epochs and lr on held-out classes")],
)
def test_a_head_that_makes_things_worse_is_named(rows, tmp_path, capsys, init, advice):
    """Rows of one number, all of them 1 or -1."""
    assert cli.main(["train", rows, "--out", str(tmp_path / "run"), *SMALL, "--dim", "1", "--head_init", init]) == 0
    printed = capsys.readouterr().out
    trained, *untrained = [
        float(line.partition("R@1 ")[2].split()[0]) for line in printed.splitlines() if "R@1 " in line and "MAP@R" in line
    ]
    assert f"R@1 is {max(untrained) - trained:.1f} points below what was there untrained: {advice}" in printed


def test_a_runs_config_repeats_it(rows, tmp_path, capsys):
    assert cli.main(["train", rows, "--out", str(tmp_path / "a"), "--weight", "3", *SMALL]) == 0
    assert cli.main(["train", "--config", str(tmp_path / "a" / "config.yaml"), "--out", str(tmp_path / "b")]) == 0
    first, second = (json.loads((tmp_path / name / "result.json").read_text())["scores"] for name in "ab")
    assert first == second


def test_a_config_that_is_no_text(capsys, tmp_path):
    (tmp_path / "options.yaml").write_bytes(b"epochs: 3\nlogger: \xff\xfe\n")
    assert cli.main(["train", "glyphs", "--config", str(tmp_path / "options.yaml")]) == 2
    said = capsys.readouterr().err
    assert "config is no text in UTF-8" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_is_valid_for_every_kind_of_data(name):
    for data in ("cub200:x", "cars196:x", "sop:x", "inshop:x", "folder:x", "glyphs", "x.npz"):
        assert preset(name, data).preset == name


def test_an_option_that_there_is_not():
    with pytest.raises(InputError, match=r"omgea=0\.3 is no option of a training; did you mean omega\?"):
        preset("ms+obd-sd", "glyphs", omgea=0.3)


def test_weights_for_embeddings_are_small():
    """As held-out classes of two data sets have it: λ = 1000 for PSD gains 0.8 points on one and loses 6 on the other."""
    weights = {name: preset(name, "x.npz").weight for name in ("ms+psd", "ms+psd-constant", "ms+psd-balanced", "ms+obd-sd", "ms+mean-mix")}
    assert weights == {"ms+psd": 100, "ms+psd-constant": 100, "ms+psd-balanced": 100, "ms+obd-sd": 1, "ms+mean-mix": 1}


def test_the_papers_settings():
    """method.md's table."""
    for data, weight, omega, walk, epochs in (("cub200", 1000, 0.3, 1, 150), ("cars196", 75, 0.99, 1, 150), ("sop", 100, 0.5, 0.005, 100)):
        chosen = preset("ms+obd-sd-softmax", f"{data}:x")
        assert (chosen.weight, chosen.omega, chosen.walk_temperature, chosen.epochs) == (weight, omega, walk, epochs)
        assert (chosen.batch_size, chosen.per_class, chosen.lr, chosen.weight_decay, chosen.temperature) == (112, 2, 1e-5, 4e-4, 1.0)
        assert (chosen.optimizer, chosen.backbone, chosen.pooling, chosen.head, chosen.ramp) == (
            "adam",
            "resnet50.tv_in1k",
            "avg",
            "linear",
            "linear",
        )
    assert preset("ms", "sop:x").depths == (1, 10, 100)


MISTAKES = [
    (["train"], "data must be given; add --help to see how"),
    (["train", "glyphs", "--preset", "ms+obdsd"], "preset='ms+obdsd' is not known; did you mean ms+obd-sd?"),
    (["train", "glyphs", "--teacher", "previous"], "did you mean previous-epoch?"),
    (["train", "glyphs", "--wieght", "3"], "unrecognized arguments: --wieght 3; did you mean --weight?"),
    (["train", "glyphs", "--channels-last", "maybe"], "unrecognized arguments: maybe; --channels-last is true or false"),
    (["train", "glyphs", "--hidden", "wide"], "hidden=wide must be a whole number"),
    (["train", "glyphs", "--head-lr", "fast"], "head_lr=fast must be a number"),
    (["train", "glyphs", "--logger", "wandbb"], "logger=wandbb must be one of 'tensorboard', 'wandb', 'mlflow'; did you mean wandb?"),
    (["train", "glyphs", "--lr", "0"], "lr=0.0 must be a positive number"),
    (["train", "glyphs", "--omega", "1"], r"omega=1.0 must lie in [0, 1)"),
    (["train", "glyphs", "--epochs", "0"], "epochs=0 must be 1 or more"),
    (["train", "glyphs", "--crop", "0"], "crop=0.0 must lie in (0, 1]"),
    (["train", "glyphs", "--workers", "-1"], "workers=-1 must be 0 or more"),
    (["train", "glyphs", "--clip", "-1"], "clip=-1.0 must be 0 or more"),
    (["train", "glyphs", "--patience", "-1"], "patience=-1 must be 0 or more"),
    (["train", "glyphs", "--select", "best"], "select=best needs held-out classes; add val_fraction=0.2"),
    (["train", "glyphs", "--schedule", "steps"], "lr_steps= and schedule=steps must go together"),
    (["train", "glyphs", "--schedule", "steps", "--lr-steps", "a"], "lr_steps=a must be whole numbers with commas, as 200,250"),
    (["train", "glyphs", "--ks", ","], "ks=, must hold a number; try 1,2,4,8"),
    (["train", "glyphs", "--val-fold", "3"], "val_fold=3 must be I/K with I from 0 to K-1, as 0/5"),
    (["train", "glyphs", "--val-fold", "3/3"], "val_fold=3/3 must be I/K with I from 0 to K-1, as 0/5"),
    (["train", "glyphs", "--val-fold", "0/3", "--val-fraction", "0.2"], "val_fold=0/3 and val_fraction are two ways; give one"),
    (["train", "glyphs", "--teacher", "frozen"], "teacher=frozen needs teacher_model, a run or a model folder"),
    (["train", "glyphs", "--teacher-model", "runs/a"], "teacher_model=runs/a goes with teacher=frozen only"),
    (
        ["train", "glyphs", "--preset", "ms", "--teacher", "ema"],
        "preset=ms is the plain loss, but teacher=ema would teach; from",
    ),
    (["train", "glyphs", "--preset", "MS+OBD-SD"], "preset='MS+OBD-SD' is not known; did you mean ms+obd-sd?"),
    (["train", "photos"], "data='photos' must be NAME:PATH, glyphs, or an embeddings file (.npz, .npy, .parquet); names are cub200"),
    (["compare", "glyphs", "--resume"], "unrecognized arguments: --resume; compare goes on by itself, give the same command without it"),
    (["compare", "glyphs", "--rows", "a.yaml", "--presets", "ms,ms+psd"], "rows=a.yaml and presets=ms,ms+psd are two ways to say"),
    (["train", "glyphs", "--miner", "BatchHardMiner"], "miner=BatchHardMiner goes with loss=pml:NAME only"),
    (["train", "glyphs", "--seed", "-1"], "seed=-1 must be a whole number from 0 to 2147483647"),
    (["train", "glyphs", "--split-seed", "-1"], "split_seed=-1 must be a whole number"),
    (["train", "glyphs", "--preset", "ms", "--weight", "7"], "weight=7.0 does nothing with teacher=none; leave it out or change teacher"),
    (["train", "glyphs", "--objective-lr", "0.1"], "objective_lr=0.1 does nothing with loss=multi-similarity; leave it out or change loss"),
    (["train", "glyphs", "--head", "none", "--head-lr", "0.1"], "head_lr=0.1 does nothing with head=none"),
    (["train", "glyphs", "--preset", "nt-xent", "--replacement"], "replacement=True does nothing with supervision=none"),
    (["train", "x.npz", "--batchnorm", "train"], "batchnorm=train does nothing with backbone=features"),
    (["train", "glyphs", "--omega", "0.99999"], "omega=0.99999 is too near 1 for torch.float32"),
    (["compare", "glyphs", "--presets", "ms,ms+psd", "--omega", "0.9"], "omega=0.9 does nothing in any row; leave it out"),
    (["data", "check", "glyphs", "--split-seed", "-1"], "split_seed=-1 must be a whole number from 0"),
    (["train", "glyphs", "--sampling", "random"], "sampling=random does nothing with loss=multi-similarity"),
    (["train", "glyphs", "--head", "none", "--head-only-epochs", "1"], "head_only_epochs=1 needs a head; use head=linear"),
    (
        ["train", "glyphs", "--val-fraction", "0.2", "--select", "best", "--evaluate-every", "0"],
        "evaluate_every=0 leaves nothing to choose from",
    ),
    (["train", "glyphs", "--score", "validation", "--test-every", "1"], "test_every=1 reads the test classes, score=validation does not"),
    (["compare", "glyphs", "--targets", "pairwise"], "targets=pairwise for every row would undo what the presets differ in"),
    (["train", "glyphs", "--device", "cuda"], "device='cuda' cannot be used"),
    (["compare", "glyphs", "--presets", "ms,ms"], "presets='ms,ms' must name different presets"),
    (["compare", "glyphs", "--presets", "ms,ms+spd"], "preset='ms+spd' is not known; did you mean ms+psd?"),
    (["compare", "glyphs", "--seeds", "0"], "seeds=0 must be 1 or more"),
    (["compare", "glyphs", "--rows", "none.yaml"], "none.yaml: No such file or directory"),
]


@pytest.mark.parametrize(("arguments", "line"), MISTAKES, ids=lambda value: " ".join(value[1:]) if isinstance(value, list) else "")
def test_a_mistake_is_one_line(arguments, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("obdsd: ")
    assert line in said
    assert said.count("\n") == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a: [", "is not YAML"),
        ("- a", "must hold rows, NAME with settings below it"),
        ("x: {preset: ms, wieght: 3}", "row x: Option 'wieght' is not accepted"),
        ("x: {preset: ms, weight: heavy}", "row x:"),
        (
            "x: {preset: ms+psd, omega: 0.9}\ny: {preset: ms}",
            "row x: omega=0.9 does nothing with targets=pairwise; leave it out or change targets",
        ),
        ("a/b: {preset: ms}", "row='a/b' names a folder; use letters, digits and . + - _"),
    ],
)
def test_rows_that_are_none(content, line, capsys, tmp_path):
    (tmp_path / "rows.yaml").write_text(content)
    assert cli.main(["compare", "glyphs", "--rows", str(tmp_path / "rows.yaml")]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


def test_a_comparison_by_one_command(rows, tmp_path, capsys):
    (tmp_path / "rows.yaml").write_text("plain: {preset: ms}\nflatter: {preset: ms+psd, scale: 0.7, weight: 9}\n")
    out = tmp_path / "out"
    assert (
        cli.main(["compare", rows, "--rows", str(tmp_path / "rows.yaml"), "--seeds", "2", "--first-seed", "5", "--out", str(out), *SMALL])
        == 0
    )
    printed = capsys.readouterr().out
    assert "flatter: " in printed
    assert "frozen features, untrained" in printed
    config = yaml.safe_load((out / "flatter" / "seed-6" / "config.yaml").read_text())
    assert (config["scale"], config["weight"], config["epochs"], config["targets"]) == (0.7, 9.0, 2, "pairwise")
    assert sorted(path.name for path in out.glob("comparison.*")) == ["comparison.csv", "comparison.json", "comparison.md"]


def heed_ctrl_c():
    """A shell starts background jobs with the signal ignored, and that would be inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def running(command):
    """A process that is gone at the end, whatever happens."""
    environment = {**os.environ, "PYTHONPATH": str(Path(obdsd.__file__).parent.parent)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, env=environment, preexec_fn=heed_ctrl_c) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(true, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_keeps_the_step_and_says_how_to_go_on(rows, tmp_path, number, code):
    """A real process, a real signal; then the same command with --resume."""
    out = tmp_path / "run"
    metrics = out / "metrics.jsonl"
    command = [sys.executable, "-m", "obdsd", "train", rows, "--out", str(out), *SMALL, "--epochs", "4000"]
    with running(command) as process:
        wait_until((out / "checkpoints" / "last.pt").exists, process)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode == code
    assert f"stopped; {out} keeps everything so far: the same command with --resume goes on from there\n" in said
    assert "Traceback" not in said
    before = len(metrics.read_text().splitlines())
    with running([*command, "--resume"]) as process:
        wait_until(lambda: len(metrics.read_text().splitlines()) > before, process)
    epochs = [json.loads(line)["epoch"] for line in metrics.read_text().splitlines()]
    assert epochs == list(range(len(epochs)))
