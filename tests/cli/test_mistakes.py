"""Mistakes in the options of `obdsd train` and `obdsd compare`: one line each, exit code 2, and nothing is written."""

import os

import huggingface_hub
import pytest

from obdsd import cli
from obdsd.data import open_data

TRAIN = [  # obdsd train glyphs …
    ("--wieght 3", "--wieght is no option of obdsd train; did you mean --weight?"),
    ("--flip --wieght 3", "--wieght is no option of obdsd train; did you mean --weight?"),
    ("--head_init random", "--head_init is no option of obdsd train; did you mean --head-init?"),
    ("--sampling random", '--sampling is a setting of a part; write --loss "margin(sampling=…)", with the quotes'),
    ("--beta 0.6", '--beta is a setting of a part; write --loss "multi-similarity(beta=…)" or --loss "margin(beta=…)" or'),
    ("--decay 0.9", '--decay is a setting of a part; write --teacher "ema(decay=…)", with the quotes'),
    ("--channels-last maybe", "--channels-last takes no value; --channels-last turns it on, --no-channels-last turns it off"),
    ("--epochs", "--epochs needs a value: --epochs NUMBER"),
    ("--ks", "--ks needs a value: --ks NUMBER,…"),
    ("more", "'more' is one word too many: obdsd train DATA [options]; the name of an option begins with --"),
    ("--preset ms+obdsd", "--preset 'ms+obdsd' is not known; did you mean ms+obd-sd?"),
    ("--loss marign", "--loss marign is not known; did you mean margin?"),
    ("--loss margin(beta=x)", "--loss margin(beta=x): beta=x must be a number"),
    ("--loss margin(beta=0.6", "loss: 'margin(beta=0.6' has no ')' or ',' after 0.6; write it as margin(beta=0.6, sampling=random)"),
    ("--loss margin(sampling=hard)", "--loss margin(sampling=hard): sampling=hard must be one of random, semihard, softhard, distance,"),
    ("--teacher frozen", "--teacher frozen needs source; write frozen(source=…)"),
    ("--epochs 1.5", "--epochs 1.5 must be a whole number"),
    ("--epochs=", "--epochs must be a whole number"),
    ("--head-lr fast", "--head-lr fast must be a number"),
    ("--logger wandbb", "--logger wandbb must be one of tensorboard, wandb, mlflow; did you mean wandb?"),
    ("--lr 0", "--lr 0.0 must be a number above 0"),
    ("--lr -1e-3", "--lr -0.001 must be a number above 0"),
    ("--preset ms+obd-sd --omega 1", "--targets batch-diffusion(omega=1.0): --omega 1.0 must lie in [0, 1); try 0.3, or 0"),
    ("--preset ms+obd-sd --omega 0.99999", "--omega 0.99999 is too near 1 for torch.float32"),
    ("--epochs -3", "--epochs -3 must be 1 or more"),
    *((f"--{name} -1", f"--{name} -1{number} must be 0 or more") for name, number in (("workers", ""), ("patience", ""), ("clip", ".0"))),
    *((f"--{name} -1", f"--{name} -1 must be from 0 to less than 2147483647") for name in ("seed", "split-seed")),
    ("--crop 0", "--crop 0.0 must be a number above 0"),
    ("--ks 1,x", "--ks x must be a whole number"),
    ("--preset ms --weight 7", "--weight 7.0 does nothing with --teacher none; leave it out, or choose --preset ms+obd-sd"),
    ("--head none --head-lr 0.1", "--head-lr 0.1 does nothing with --head none"),
    ("--preset nt-xent --replacement", "--replacement does nothing with --supervision none"),
]  # fmt: skip
OTHERS = [
    ("train", "DATA must be given: obdsd train DATA [options]"),
    ("train photos", "DATA 'photos' must be NAME:PATH, glyphs, or an embeddings file (.npz, .npy"),
    ("train x.npz --batchnorm train --print-config", "--batchnorm train does nothing with --backbone features"),
    ("compare", "DATA must be given: obdsd compare DATA [options]"),
    ("compare glyphs --resume", "--resume is no option of obdsd compare; a comparison goes on by itself, give the same command without it"),
    ("compare glyphs --preset ms", "--preset is no option of obdsd compare; name several with --presets"),
    ("compare glyphs --seed 3", "--seed is no option of obdsd compare; say how many with --seeds, and where they begin with --first-seed"),
    ("compare glyphs --rows a.yaml --presets ms,ms+psd", "--rows a.yaml and --presets ms,ms+psd are two ways to choose what is compared"),
    ("compare glyphs --score none", "--score none with --test-fraction 0.5 scores nothing to compare; leave them out"),
    ("compare glyphs --test-fraction 0", "--score test with --test-fraction 0 scores nothing to compare; leave them out"),
    ("compare glyphs --rows none.yaml", "--rows none.yaml: no such file; give a YAML file of rows"),
    ("compare glyphs --presets ms,ms+psd --omega 0.9", "--omega 0.9 does nothing in any row; leave it out"),
    ("compare glyphs --omega 1.5", "row ms+obd-sd: --targets batch-diffusion(omega=1.5): --omega 1.5 must lie in [0, 1)"),
    ("compare glyphs --targets pairwise", "--targets pairwise for every row would undo what the presets differ in"),
    ("compare glyphs --presets ms,ms", "--presets 'ms,ms' must name different presets, as ms,ms+obd-sd"),
    ("compare glyphs --presets ,", "--presets '' must name different presets, as ms,ms+obd-sd"),
    ("compare glyphs --presets ms,ms+spd", "row ms+spd: preset='ms+spd' is not known; did you mean ms+psd?"),
    ("compare glyphs --presets ms,arenna", "row arenna: preset='arenna' is not known"),
    ("compare glyphs --rows a.yaml --tune", "--tune chooses what presets are weighed by, --rows a.yaml say it themselves; leave one"),
    ("compare glyphs --tune --val-fraction 0.2", "--val-fraction 0.2 and --tune both hold training classes out; leave one of them out"),
    ("compare glyphs --tune --score validation", "--score validation and --tune both hold training classes out"),
    ("compare glyphs --tune --weight 0", "row ms+psd: --weight 0.0 leaves tune nothing to choose from; give another, or leave tune out"),
    ("compare glyphs --similarities no.npz --presets arena", "no.npz: no such file; check the path"),
    ("compare glyphs --seeds 0", "--seeds 0 must be 1 or more"),
    ("compare glyphs --weight heavy", "--weight heavy must be a number"),
]  # fmt: skip
MISTAKES = [*((f"train glyphs {more}", answer) for more, answer in TRAIN), *OTHERS]


@pytest.fixture(autouse=True, scope="module")
def rendered():
    """The built-in letters are in the cache: to render them may take long enough for a line of progress."""
    open_data("glyphs")


@pytest.mark.parametrize(("line", "answer"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_line(line, answer, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("obdsd.training.loop.Loop._run_epoch", None)  # no training begins
    assert cli.main(line.split()) == 2
    printed, said = capsys.readouterr()
    assert (printed, said[:7], said.count("\n"), os.listdir(tmp_path)) == ("", "obdsd: ", 1, [])
    assert answer in said


def test_what_needs_no_network_is_told_before_what_does(refused, monkeypatch, tmp_path):
    """Weights are asked for last: nobody waits for a download to learn of a typing mistake."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    command = ["train", "manifest:list.csv", "--preset", "ms+obd-sd", "--backbone", "resnet50", "--batch-size"]
    assert refused(*command, 13).startswith("--batch-size 13 must be")
    assert refused(*command, 4, "--omega", "1").startswith("--targets batch-diffusion(omega=1.0): --omega 1.0 must lie in [0, 1)")
    assert refused(*command, 4).startswith(
        "--pretrained imagenet cannot be had for resnet50 (HF_HUB_OFFLINE is set); go online, pass a file"
    )
