"""Parts from outside: another package adds a part of every kind and a metric, and all commands know them."""

import json
import os
import subprocess
import sys
from pathlib import Path

from obdsd.cli import main

OUTSIDE = Path(__file__).parent / "outside"  # a package and its entry point, as pip would install them
TAUGHT = {
    "preset": "ms+psd",
    "loss": "pull(strength=2.0)",
    "teacher": "lagging(every=2)",
    "targets": "balanced(sharpened(power=3.0))",
    "matching": "squares(times=2.0)",
    "system": "scaled(share=0.5)",
}
SMALL = ["--device", "cpu", "--no-report"]


def run(code: str, cwd: Path) -> str:
    """What some code prints in a process of its own, where the package is installed."""
    paths = [str(OUTSIDE), *(path for path in sys.path if path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}
    process = subprocess.run([sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout


def result_of(run: Path) -> dict:
    return json.loads((run / "result.json").read_text())


def test_a_package_from_outside_trains_compares_and_reports(tmp_path):
    """One test, as it is one story in two processes: the command line, then Python."""
    printed = by_the_command_line(tmp_path)
    assert "  sharpened: The teacher's softmax raised to a power.\n      power: The power. [default 2.0]\n" in printed
    config = (tmp_path / "run" / "config.yaml").read_text()
    parts = "loss: pull(strength=2.0)", "teacher: lagging(every=2)", "balanced(sharpened(power=3.0))", "system: scaled(share=0.5)"
    for part in (*parts, "matching: squares(times=2.0)"):
        assert part in config
    scores = result_of(tmp_path / "run")["scores"]
    assert 0 < scores["second-hit"] <= 1
    assert "Second hit " in printed
    backwards = result_of(tmp_path / "run")["reranked"]["backwards"]
    assert backwards["recall@1"] < scores["recall@1"]
    assert "re-ranked by backwards (transductive): " in printed

    # the processes that a comparison starts know the parts and the metric, which has a module of its own
    assert "Second hit" in (tmp_path / "both" / "comparison.md").read_text().splitlines()[0]
    assert result_of(tmp_path / "both" / "taught" / "seed-0")["scores"] == scores  # the same training
    assert 0 < result_of(tmp_path / "both" / "plain" / "seed-0")["scores"]["second-hit"] <= 1

    assert "Second hit" in (tmp_path / "report.html").read_text()

    again, trains_margins, dim, targets = in_python(tmp_path)
    assert again == scores
    assert trains_margins  # the parameters of the loss
    assert (dim, targets) == (4, "batch-diffusion(omega=0.6)")  # the data's own settings


def by_the_command_line(folder: Path) -> str:
    (folder / "rows.yaml").write_text(json.dumps({"plain": {"preset": "ms", "loss": "pull"}, "taught": TAUGHT}))
    flags = [word for name, value in TAUGHT.items() for word in (f"--{name}", value)]
    commands = [
        ["parts", "targets"],
        ["train", "rings", *flags, "--rerank", "backwards", "--out", "run", *SMALL],
        ["compare", "rings", "--rows", "rows.yaml", "--seeds", "1", "--jobs", "2", "--out", "both", *SMALL],
        ["report", "both", "--out", "report.html", "--device", "cpu"],
    ]
    code = f"from obdsd.cli import main\nfor words in {commands!r}:\n    code = main(words)\n    assert code == 0, (words, code)\n"
    return run(code, folder)


def in_python(folder: Path) -> list:
    """The same training after an import of the package."""
    code = f"""
import json, rings
from obdsd.presets import preset
from obdsd.training import Trainer, train
from obdsd.training.build import collection_of

changes = {TAUGHT!r}
name = changes.pop("preset")
options = preset(name, "rings", **changes, device="cpu", out="again")
trainer = Trainer(options, collection_of(options))
trained = {{id(p) for group in trainer.optimizer.param_groups for p in group["params"]}}
trains_margins = id(trainer.system.objective.margins) in trained
record = train(options, show=False)
print(json.dumps([dict(record.scores), trains_margins, record.model().dim, str(preset("ms+obd-sd", "rings").targets)]))
"""
    return json.loads(run(code, folder).splitlines()[-1])


def test_where_the_package_is_missing_its_parts_are_not_known(capsys):
    assert main(["train", "rings"]) == 2
    assert capsys.readouterr().err.startswith("obdsd: DATA 'rings' must be NAME:PATH")
    assert main(["train", "glyphs", "--loss", "pull"]) == 2
    assert capsys.readouterr().err.startswith("obdsd: --loss pull is not known")
