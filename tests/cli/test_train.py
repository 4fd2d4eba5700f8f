"""`obdsd train`: a training by one command, gone on with, repeated, and evaluated on the classes that it did not see."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from obdsd import cli
from obdsd.cli.train import _advice
from obdsd.options import TrainOptions
from tests.cli.conftest import SMALL


def result(folder):
    return json.loads((folder / "result.json").read_text())


def test_a_training_by_one_command(trained):
    found = result(trained.folder)
    assert f"trained: Recall@1 {100 * found['scores']['recall@1']:.2f} %" in trained.printed
    assert "test classes, last epoch (epoch 2 of 2):\n" in trained.printed
    assert "frozen features, untrained: Recall@1" in trained.printed
    assert f"model: {trained.folder / 'model'}" in trained.printed
    assert f"scores: {trained.folder / 'result.json'}" in trained.printed
    assert "epoch 2/2: base" in trained.progress
    assert "seed: 3\n" in (trained.folder / "config.yaml").read_text()


def test_a_run_is_evaluated_on_the_classes_that_it_did_not_see(trained, tmp_path, capsys):
    data, scores = trained.words[1], result(trained.folder)["scores"]
    for model in (trained.folder, trained.folder / "model"):
        assert cli.main(["evaluate", str(model), data, "--out", str(tmp_path / "scores.json")]) == 0
        assert json.loads((tmp_path / "scores.json").read_text())["scores"] == pytest.approx(scores)
    capsys.readouterr()
    assert cli.main(["evaluate", str(trained.folder), data, "--split-seed", "0"]) == 2
    assert "--split-seed 0 is not the 7 that MODEL " in capsys.readouterr().err


def test_a_scheduler_needs_one_command(trained, capsys):
    """With --resume from the first time on: it begins, goes on, and says when all is done."""
    assert f"nothing to resume in {trained.folder} yet: beginning" in trained.progress
    assert cli.main(trained.words) == 0
    again = capsys.readouterr()
    assert f"{trained.folder} is finished: nothing was left to do" in again.err
    assert again.out == trained.printed
    assert cli.main([*trained.words, "--weight", "4"]) == 2
    assert "--weight 4.0 differs from" in capsys.readouterr().err


def test_a_runs_config_repeats_it(trained, tmp_path):
    assert cli.main(["train", "--config", str(trained.folder / "config.yaml"), "--out", str(tmp_path / "again"), "--no-report"]) == 0
    assert result(tmp_path / "again")["scores"] == result(trained.folder)["scores"]


def test_a_folder_where_nothing_was_trained_is_no_run(tmp_path, capsys):
    """The first try failed on the data; they were mended, and the same command begins."""
    vectors = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
    labels, out = np.repeat(np.arange(10), 4), tmp_path / "run"
    np.savez(tmp_path / "rows.npz", embeddings=vectors[:, :3], labels=labels)
    command = f"train {tmp_path / 'rows.npz'} --out {out} --batch-size 8 --dim 4 --epochs 1 --no-report".split()
    assert cli.main([*command, "--loss", "pml(BaseMetricLossFunction)"]) == 2  # its first step fails
    assert (out / "config.yaml").exists()
    np.savez(tmp_path / "rows.npz", embeddings=vectors, labels=labels)
    capsys.readouterr()
    assert cli.main(command) == 0
    assert not (out / "failure.json").exists()
    assert cli.main(command) == 2
    assert "holds a run already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("init", "advice"),
    [
        ("random", "begin with --head linear --head-init projection"),
        ("projection", "let held-out classes choose the epoch: --val-fraction 0.3 --select best"),
    ],
)
def test_a_head_that_makes_things_worse_is_named(rows, tmp_path, capsys, init, advice):
    """Rows of one number, all of them 1 or -1."""
    words = ["--preset", "ms", "--epochs", "1", "--dim", "1", "--head-init", init]
    assert cli.main(["train", rows, "--out", str(tmp_path / "run"), *SMALL, *words]) == 0
    printed = capsys.readouterr().out
    trained, *untrained = [float(line.partition("Recall@1 ")[2].split()[0]) for line in printed.splitlines() if "trained: Recall" in line]
    assert f"Recall@1 is {max(untrained) - trained:.1f} points below what was there untrained" in printed
    assert f"\n  {advice}\n" in printed


@pytest.mark.parametrize(("seen", "flags"), [({}, ""), ({"size": 64, "pooling": "gem"}, " --size 64 --pooling gem")])
def test_untrained_features_that_are_better_can_be_searched_at_once(seen, flags):
    """The very features that the run was compared with."""
    untrained = {"frozen features": {"recall@1": 0.5, "map@r": 0.2}}
    options = TrainOptions(data="folder:my photos", backbone="tf_efficientnet_lite0", pretrained="offline", **seen)
    lines = _advice(SimpleNamespace(options=options, reference=untrained, scores={"recall@1": 0.4, "map@r": 0.1}), 0.1)
    assert lines[-2:] == [
        f"  or take the untrained features: obdsd index tf_efficientnet_lite0:offline 'folder:my photos'{flags} --out photos.index",
        f"  or as a file: obdsd embed tf_efficientnet_lite0:offline 'folder:my photos'{flags} --out rows.parquet",
    ]


def test_a_run_that_goes_on_knows_its_data(trained, capsys):
    assert cli.main(["train", "--out", str(trained.folder), "--resume"]) == 0
    assert "is finished: nothing was left to do" in capsys.readouterr().err
    assert cli.main(["train", "--out", f"{trained.folder}-gone", "--resume"]) == 2
    assert "DATA must be given" in capsys.readouterr().err


def test_a_run_is_called_what_it_is_and_an_older_name_does_not_matter(rows, tmp_path, monkeypatch, capsys):
    """In its folder's name, its configuration and its result. Before, it had the name of the preset that it began from."""
    monkeypatch.chdir(tmp_path)
    command = ["train", rows, *SMALL, "--preset", "ms+obd-sd", "--loss", "proxy-anchor", "--teacher", "none"]
    assert cli.main(command) == 0
    folder = tmp_path / "runs" / "rows-proxy-anchor-0"
    config = (folder / "config.yaml").read_text()
    assert "\npreset: proxy-anchor\n" in config
    assert result(folder)["preset"] == "proxy-anchor"
    (folder / "config.yaml").write_text(config.replace("\npreset: proxy-anchor\n", "\npreset: ms+obd-sd\n"))
    assert cli.main([*command, "--resume"]) == 0
    assert "is finished: nothing was left to do" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "remark"),
    [
        ("--preset ms+obd-sd --epochs 1", "its weight is 0 in the first epoch, the only one; more epochs or a constant ramp let it act"),
        ("--preset ms+obd-sd --weight 0", "its weight is 0; this is the plain loss"),
        ("--preset ms+s2sd-msd --ramp linear --epochs 1", "its weight is 0 in the first epoch, the only one"),
        ("--preset ms+obd-sd --epochs 1 --ramp constant", ""),
        ("--preset ms+obd-sd", ""),
        ("--preset ms --epochs 1", ""),
    ],
)
def test_a_distillation_that_never_acts_is_told(rows, tmp_path, capsys, words, remark):
    assert cli.main(["train", rows, "--out", str(tmp_path / "run"), *SMALL, "--no-reference", *words.split()]) == 0
    told = capsys.readouterr().err
    assert ("the distillation never acts" in told, remark in told) == (remark != "", True)


def test_without_a_preset_what_was_chosen_is_told_and_one_model_takes_the_photos(obdsd, made, tmp_path):
    """Also when nothing is left to be scored."""
    words = ["train", "manifest:list.csv", "--backbone", "tiny-conv", "--pretrained", "none", *SMALL, "--batch-size", "4"]
    code, printed, told = obdsd(*words, "--out", tmp_path / "run")
    assert code == 0
    assert told.startswith("recommended for these data:\n  --frozen: ")
    assert f"model: {tmp_path / 'run/model'}" in printed
    assert obdsd("evaluate", tmp_path / "run", "manifest:list.csv", "--device", "cpu")[0] == 0
    plain = [f"{name}-train-{i}.png,{name}" for name in ("ant", "bee") for i in range(8)]
    (made / "all.csv").write_text("\n".join(["path,label", *plain]) + "\n")
    words[1] = "manifest:all.csv"
    code, printed, told = obdsd(*[word for word in words if word != "--no-report"], "--test-fraction", "0", "--out", tmp_path / "all")
    assert (code, printed) == (0, f"epoch 2 of 2; nothing was scored\nmodel: {tmp_path / 'all/model'}\n")
    assert "all classes are trained on, and nothing is scored" in told
    code, _, told = obdsd("report", tmp_path / "all", "--out", tmp_path / "page.html")
    assert (code, told.partition(": nothing was scored")[1]) == (2, ": nothing was scored")
