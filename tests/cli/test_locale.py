"""A terminal and a locale without Unicode, in a real process: what was trained is not lost at the last line."""

import os
import subprocess
import sys

import numpy as np
import pytest

TRAIN = ["--preset", "ms", "--epochs", "1", "--batch-size", "8", "--per-class", "4", "--ks", "1", "--no-report", "--out", "out"]


def run(folder, *words, **environment):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", **environment}
    done = subprocess.run([sys.executable, "-m", "obdsd", *words], cwd=folder, env=environment, capture_output=True, check=False)
    return done.returncode, done.stdout.decode("ascii"), done.stderr.decode("ascii")


@pytest.fixture
def folder(tmp_path):
    rows, labels = np.random.default_rng(0).normal(size=(48, 4)), np.repeat([f"žluť 鳥 {i} 🐦" for i in range(6)], 8)
    for name in ("x.npz", "鳥.npz"):
        np.savez(tmp_path / name, embeddings=rows, labels=labels, names=[f"é{i}.jpg" for i in range(48)])
    return tmp_path


def test_class_names_in_unicode_are_trained_and_scored(folder):
    code, printed, notes = run(folder, "train", "x.npz", *TRAIN)
    assert (code, printed.splitlines()[-1]) == (0, "scores: out/result.json"), notes
    assert "žluť 鳥" in (folder / "out/per_class.json").read_text(encoding="utf-8")


def test_a_path_in_unicode_is_written_as_it_can_be(folder):
    code, printed, notes = run(folder, "evaluate", "鳥.npz", "--ks", "1", LC_ALL="C.UTF-8", PYTHONUTF8="1")
    assert (code, notes) == (0, "")
    assert printed.startswith(r"\u9ce5.npz: ")


def test_a_path_that_the_locale_cannot_read_is_refused_at_once(folder):
    code, printed, notes = run(folder, "train", "鳥.npz", *TRAIN)
    line = "obdsd: \\udce9\\udcb3\\udca5.npz: is not UTF-8; rename it, or set PYTHONUTF8=1 where the locale has another encoding\n"
    assert (code, printed, notes) == (2, "", line)
    assert not (folder / "out").exists()
