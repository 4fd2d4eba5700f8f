"""Parts from outside: another package adds a data set, a loss, a teacher, targets, a system and a metric, and all commands know them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from obdsd.cli import main

OUTSIDE = Path(__file__).parent / "outside"  # a package and its entry point, as pip would install them
TAUGHT = {
    "preset": "ms+psd",
    "loss": "pull(strength=2.0)",
    "teacher": "lagging(every=2)",
    "targets": "balanced(sharpened(power=3.0))",
    "system": "scaled(share=0.5)",
}
SMALL = ["--reference", "--device", "cpu", "--epochs", "2"]


def run(code: str, cwd: Path) -> subprocess.CompletedProcess:
    """Some code in a process of its own, where the package is installed."""
    paths = [str(OUTSIDE), *(path for path in sys.path if path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A training, a comparison in two processes, and reports of both, by the command line."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "rows.yaml").write_text(json.dumps({"plain": {"preset": "ms", "loss": "pull"}, "taught": TAUGHT}))
    flags = [word for name, value in TAUGHT.items() for word in (f"--{name}", value)]
    commands = [
        ["parts", "targets"],
        ["train", "rings", *flags, "--out", "run", *SMALL, "--no-report"],
        ["compare", "rings", "--rows", "rows.yaml", "--seeds", "1", "--jobs", "2", "--out", "both", *SMALL, "--no-report"],
        ["report", "run", "--out", "run.html", "--device", "cpu"],
        ["report", "both", "--out", "both.html", "--device", "cpu"],
    ]
    code = f"from obdsd.cli import main\nfor words in {commands!r}:\n    code = main(words)\n    assert code == 0, (words, code)\n"
    guarded = "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in code.splitlines())
    process = run(guarded, folder)
    assert process.returncode == 0, process.stderr
    return folder, process


def result_of(run: Path) -> dict:
    return json.loads((run / "result.json").read_text())


def test_an_installed_package_trains_by_the_command_line(done):
    folder, process = done
    assert "  sharpened: The teacher's softmax raised to a power.\n      power: The power. [default 2.0]\n" in process.stdout
    config = (folder / "run" / "config.yaml").read_text()
    for part in ("loss: pull(strength=2.0)", "teacher: lagging(every=2)", "balanced(sharpened(power=3.0))", "system: scaled(share=0.5)"):
        assert part in config
    assert 0 < result_of(folder / "run")["scores"]["second-hit"] <= 1
    assert "Second hit " in process.stdout


def test_processes_that_a_comparison_starts_know_the_parts_and_the_metric(done):
    folder, process = done
    assert "Second hit" in (folder / "both" / "comparison.md").read_text().splitlines()[0]
    shares = [result_of(folder / "both" / row / "seed-0")["scores"]["second-hit"] for row in ("plain", "taught")]
    assert all(0 < share <= 1 for share in shares)
    assert result_of(folder / "both" / "taught" / "seed-0")["scores"] == result_of(folder / "run")["scores"]  # the same training
    assert "Second hit" in process.stdout


def test_reports_show_the_metric(done):
    folder, _ = done
    assert "Second hit" in (folder / "run.html").read_text()
    assert "Second hit" in (folder / "both.html").read_text()


def test_importing_is_enough_in_python(done):
    """The same training, and a model that another process opens; what the loss trains is trained."""
    folder, _ = done
    code = f"""
import json, rings
import torch
from obdsd.presets import preset
from obdsd.training import train, Trainer
from obdsd.training.build import collection_of

changes = {TAUGHT!r}
name = changes.pop("preset")
options = preset(name, "rings", **changes, device="cpu", out="again")
trainer = Trainer(options, collection_of(options))
trained = {{id(p) for group in trainer.optimizer.param_groups for p in group["params"]}}
record = train(options, show=False)
trains_margins = id(trainer.system.objective.margins) in trained
print(json.dumps([dict(record.scores), trains_margins, record.model().dim, str(preset("ms+obd-sd", "rings").targets)]))
"""
    process = run(code, folder)
    assert process.returncode == 0, process.stderr
    scores, trains_margins, dim, targets = json.loads(process.stdout.splitlines()[-1])
    assert scores == result_of(folder / "run")["scores"]
    assert (trains_margins, dim, targets) == (True, 4, "batch-diffusion(omega=0.6)")


def test_where_the_package_is_missing_its_parts_are_not_known(capsys):
    assert main(["train", "rings"]) == 2
    assert capsys.readouterr().err.startswith("obdsd: data='rings' must be NAME:PATH")
    assert main(["train", "glyphs", "--loss", "pull"]) == 2
    assert capsys.readouterr().err.startswith("obdsd: loss=pull is not known")
