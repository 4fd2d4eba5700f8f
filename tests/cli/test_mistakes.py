"""Mistakes in the options of `obdsd train` and `obdsd compare`: one line each, exit code 2, and nothing is written."""

import os

import pytest

from obdsd import cli

SEED = "must be from 0 to less than 2147483647"
TRAIN = [  # obdsd train glyphs …
    ("--wieght 3", "--wieght is no option of obdsd train; did you mean --weight?"),
    ("--flip --wieght 3", "--wieght is no option of obdsd train; did you mean --weight?"),
    ("--head_init random", "--head_init is no option of obdsd train; did you mean --head-init?"),
    ("--sampling random", '--sampling is a setting of a part; write --loss "margin(sampling=…)", with the quotes'),
    ("--beta 0.6", '--beta is a setting of a part; write --loss "multi-similarity(beta=…)" or --loss "margin(beta=…)" or'),
    ("--neighbours 5", '--neighbours is a setting of a part; write --targets "global-diffusion(neighbours=…)", with the quotes'),
    ("--decay 0.9", '--decay is a setting of a part; write --teacher "ema(decay=…)", with the quotes'),
    ("--channels-last maybe", "--channels-last takes no value; --channels-last turns it on, --no-channels-last turns it off"),
    ("--report false", "--report takes no value; --report turns it on, --no-report turns it off"),
    ("--epochs", "--epochs needs a value: --epochs NUMBER"),
    ("--epochs --lr 0.1", "--epochs needs a value: --epochs NUMBER"),
    ("--ks", "--ks needs a value: --ks NUMBER,…"),
    ("more", "'more' is one word too many: obdsd train DATA [options]; the name of an option begins with --"),
    ("--preset ms+obdsd", "preset='ms+obdsd' is not known; did you mean ms+obd-sd?"),
    ("--preset MS+OBD-SD", "preset='MS+OBD-SD' is not known; did you mean ms+obd-sd?"),
    ("--preset zzz", "preset='zzz' is not known; it is a loss (ms, margin, r-margin, proxy-anchor, proxy-nca, soft-triple, nt-xent)"),
    ("--loss marign", "loss=marign is not known; did you mean margin?"),
    ("--loss margin(bta=1)", "loss=margin(bta=1): margin has no setting 'bta'; did you mean beta?"),
    ("--loss margin(beta=x)", "loss=margin(beta=x): beta=x must be a number"),
    ("--loss margin(beta=0.6", "loss: 'margin(beta=0.6' has no ')' or ',' after 0.6; write it as margin(beta=0.6, sampling=random)"),
    ("--loss margin(sampling=hard)", "loss=margin(sampling=hard): sampling=hard must be one of random, semihard, softhard, distance,"),
    ("--teacher previous", "teacher=previous is not known; did you mean previous-epoch?"),
    ("--teacher frozen", "teacher=frozen needs source; write frozen(source=…)"),
    ("--targets batch-difusion", "targets=batch-difusion is not known; did you mean batch-diffusion?"),
    ("--preset ms --teacher ema", "preset=ms is the plain loss, but teacher=ema would teach; from"),
    ("--hidden wide", "hidden=wide must be a whole number"),
    ("--epochs 1.5", "epochs=1.5 must be a whole number"),
    ("--epochs=", "epochs= must be a whole number"),
    ("--head-lr fast", "head_lr=fast must be a number"),
    ("--logger wandbb", "logger=wandbb must be one of tensorboard, wandb, mlflow; did you mean wandb?"),
    ("--lr 0", "lr=0.0 must be a number above 0"),
    ("--lr -1e-3", "lr=-0.001 must be a number above 0"),
    ("--lr nan", "lr=nan must be a number above 0"),
    ("--omega 1", "targets=batch-diffusion(omega=1.0): omega=1.0 must lie in [0, 1); try 0.3, or 0 for no diffusion"),
    ("--omega much", "targets=batch-diffusion(omega=much): omega=much must be a number"),
    ("--omega 0.99999", "omega=0.99999 is too near 1 for torch.float32"),
    ("--epochs 0", "epochs=0 must be 1 or more"),
    ("--epochs -3", "epochs=-3 must be 1 or more"),
    ("--crop 0", "crop=0.0 must be a number above 0"),
    ("--crop 2", "crop=2.0 must be 1 or less; 1 keeps the whole image"),
    ("--workers -1", "workers=-1 must be 0 or more"),
    ("--clip -1", "clip=-1.0 must be 0 or more"),
    ("--patience -1", "patience=-1 must be 0 or more"),
    ("--seed -1", f"seed=-1 {SEED}"),
    ("--split-seed -1", f"split_seed=-1 {SEED}"),
    ("--select best", "select=best needs held-out classes; add val_fraction=0.2"),
    ("--schedule steps", "lr_steps= and schedule=steps must go together"),
    ("--schedule steps --lr-steps a", "lr_steps=a must be a whole number"),
    ("--ks ,", "ks= must hold a number; try 1,2,4,8"),
    ("--ks 1,x", "ks=x must be a whole number"),
    ("--val-fold 3", "val_fold=3 must be I/K with I from 0 to K-1, as 0/5"),
    ("--val-fold 3/3", "val_fold=3/3 must be I/K with I from 0 to K-1, as 0/5"),
    ("--val-fold 0/3 --val-fraction 0.2", "val_fold=0/3 and val_fraction are two ways; give one"),
    ("--preset ms --weight 7", "weight=7.0 does nothing with teacher=none; leave it out or change teacher"),
    ("--preset ms --omega 0.5", "omega=0.5 does nothing with teacher=none; leave it out or change teacher"),
    ("--preset ms+psd --omega 0.5", "omega=0.5 does nothing with targets=pairwise; it is a setting of batch-diffusion, "),
    ("--objective-lr 0.1", "objective_lr=0.1 does nothing: loss=multi-similarity trains no parameters; leave it out"),
    ("--head none --head-lr 0.1", "head_lr=0.1 does nothing with head=none"),
    ("--preset nt-xent --replacement", "replacement=True does nothing with supervision=none"),
    ("--head none --head-only-epochs 1", "head_only_epochs=1 needs a head; use head=linear"),
    ("--val-fraction 0.2 --select best --evaluate-every 0", "evaluate_every=0 leaves nothing to choose from"),
    ("--score validation --test-every 1", "test_every=1 reads the test classes, score=validation does not"),
    ("--device cuda", "device='cuda' cannot be used"),
]  # fmt: skip
OTHERS = [
    ("train", "data must be given: obdsd train DATA [options]"),
    ("train photos", "data='photos' must be NAME:PATH, glyphs, or an embeddings file (.npz, .npy, .parquet); names are cub200"),
    ("train x.npz --batchnorm train", "batchnorm=train does nothing with backbone=features"),
    ("compare", "data must be given: obdsd compare DATA [options]"),
    ("compare glyphs --resume", "--resume is no option of obdsd compare; a comparison goes on by itself, give the same command without it"),
    ("compare glyphs --preset ms", "--preset is no option of obdsd compare; name several with --presets"),
    ("compare glyphs --seed 3", "--seed is no option of obdsd compare; say how many with --seeds, and where they begin with --first-seed"),
    ("compare glyphs --rows a.yaml --presets ms,ms+psd", "rows=a.yaml and presets=ms,ms+psd are two ways to choose what is compared"),
    ("compare glyphs --rows none.yaml", "rows=none.yaml: no such file; give a YAML file of rows"),
    ("compare glyphs --presets ms,ms+psd --omega 0.9", "omega=0.9 does nothing in any row; leave it out"),
    ("compare glyphs --omega 1.5", "row ms+obd-sd: targets=batch-diffusion(omega=1.5): omega=1.5 must lie in [0, 1)"),
    ("compare glyphs --targets pairwise", "targets=pairwise for every row would undo what the presets differ in"),
    ("compare glyphs --presets ms,ms", "presets='ms,ms' must name different presets, as ms,ms+obd-sd"),
    ("compare glyphs --presets ,", "presets='' must name different presets, as ms,ms+obd-sd"),
    ("compare glyphs --presets ms,ms+spd", "row ms+spd: preset='ms+spd' is not known; did you mean ms+psd?"),
    ("compare glyphs --seeds 0", "seeds=0 must be 1 or more"),
    ("compare glyphs --weight heavy", "weight=heavy must be a number"),
]  # fmt: skip
MISTAKES = [*((f"train glyphs {more}", answer) for more, answer in TRAIN), *OTHERS]


@pytest.mark.parametrize(("line", "answer"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_line(line, answer, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("obdsd.training.loop.Loop._run_epoch", None)  # no training begins
    assert cli.main(line.split()) == 2
    printed, said = capsys.readouterr()
    assert printed == ""
    assert said.startswith("obdsd: ")
    assert answer in said
    assert said.count("\n") == 1
    assert os.listdir(tmp_path) == []
