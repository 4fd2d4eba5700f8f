"""One spelling of options on the command line: messages name them as people type them."""

import pytest

from obdsd import cli
from obdsd.cli.parser import parser_of
from obdsd.cli.spelling import as_typed

SPELLED = [  # of obdsd train
    ("val_fraction=0.2 must be", "--val-fraction 0.2 must be"),
    ("epochs=-3 must be 1 or more", "--epochs -3 must be 1 or more"),
    ("epochs= must be a whole number", "--epochs must be a whole number"),
    ("leave val_fraction and val_fold out", "leave --val-fraction and --val-fold out"),
    ("leave it out or change teacher", "leave it out or change teacher"),  # a word of a sentence
    ("replacement=True does nothing with supervision=none", "--replacement does nothing with --supervision none"),
    ("flip=False does nothing (flip=true)", "--no-flip does nothing (--flip)"),
    ("flip=maybe must be true or false", "--flip maybe must be true or false"),
    ("data='photos' must be NAME:PATH", "DATA 'photos' must be NAME:PATH"),
    ("out=/data/epochs=3/run: cannot be written", "--out /data/epochs=3/run: cannot be written"),
    ("'epochs=3 loss=x': no such file", "'epochs=3 loss=x': no such file"),  # a name of a file
    ("targets=batch-diffusion(omega=1.0): omega=1.0 must", "--targets batch-diffusion(omega=1.0): --omega 1.0 must"),
    ("system=s2sd(widths=[8], pooling=avg): pooling=avg", "--system s2sd(widths=[8], pooling=avg): --pooling avg"),
    ("targets=balanced(targets=mean-mix(omega=2)) fails", "--targets balanced(targets=mean-mix(omega=2)) fails"),
    ("loss=margin(beta=x): beta=x must be a number", "--loss margin(beta=x): beta=x must be a number"),  # beta is no option
    ("the loss's own parameters; lr=0.1 is large", "the loss's own parameters; --lr 0.1 is large"),
    ("my_epochs=3 and epochs_more", "my_epochs=3 and epochs_more"),
]


@pytest.mark.parametrize(("said", "typed"), SPELLED, ids=[said for said, _ in SPELLED])
def test_options_are_spelled_as_they_are_typed(said, typed):
    assert as_typed(said, parser_of("train", cli._module("train"))) == typed


def test_each_command_knows_its_own_options(capsys):
    def line(*words):
        assert cli.main(words) == 2
        return capsys.readouterr().err

    assert line("train", "glyphs", "--val-fraction", "2") == "obdsd: --val-fraction 2.0 must be from 0 to less than 1\n"
    assert line("evaluate", "x.npz", "--per-class") == "obdsd: --per-class needs a JSON file to go to; add --out scores.json\n"
    assert line("compare", "glyphs", "--first-seed", "-1").startswith("obdsd: --first-seed -1 must be from 0")
    assert line("embed", "m", "x.npz") == "obdsd: --out must be given: obdsd embed MODEL DATA --out TEXT [options]\n"
