"""`obdsd compare`: presets, or rows of a YAML file, by one command."""

import csv
import json

import pytest
import yaml

from obdsd import cli
from tests.cli.conftest import SMALL

ROWS = """
plain: {preset: ms}
flatter: {preset: ms+psd, targets: pairwise(scale=0.7), weight: 9}
ours: {preset: ms+obd-sd, targets: "batch-diffusion(omega=0.5)"}
short: {preset: ms+obd-sd, omega: 0.6}
"""


def test_a_comparison_by_one_command(rows, tmp_path, capsys):
    (tmp_path / "rows.yaml").write_text(ROWS)
    out = tmp_path / "out"
    words = ["compare", rows, "--rows", str(tmp_path / "rows.yaml"), "--seeds", "2", "--first-seed", "5", "--out", str(out), *SMALL]
    assert cli.main(words) == 0
    printed, progress = capsys.readouterr()
    assert "flatter: " in printed
    assert "frozen features, untrained" in printed
    assert f"tables: {out}/comparison.md, .csv, .json" in printed
    assert "run 8 of 8: short, 6\n" in progress
    configs = {name: yaml.safe_load((out / name / "seed-6" / "config.yaml").read_text()) for name in yaml.safe_load(ROWS)}
    assert {name: config["targets"] for name, config in configs.items() if name != "plain"} == {
        "flatter": "pairwise(scale=0.7)",
        "ours": "batch-diffusion(omega=0.5)",
        "short": "batch-diffusion(omega=0.6)",
    }
    assert (configs["flatter"]["weight"], configs["flatter"]["epochs"], configs["plain"]["teacher"]) == (9.0, 2, "none")
    assert [line["name"] for line in json.loads((out / "comparison.json").read_text())["lines"]] == [*configs]
    with open(out / "comparison.csv", newline="") as file:
        assert [row[0] for row in csv.reader(file)] == ["", *configs]
    assert all(sentence in (out / "comparison.md").read_text() for sentence in printed.split("\n\n")[2].splitlines())
    assert cli.main(words) == 0  # nothing is left to train
    again = capsys.readouterr()
    assert again.out == printed
    assert "run " not in again.err


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a: [", "rows.yaml: is no YAML (expected the node content"),
        ("- a", "rows.yaml: must hold named fields"),
        ("a: 3", "rows.yaml: must hold rows, NAME with settings below it, as 'ours: {preset: ms+obd-sd, omega: 0.5}'"),
        ("x: {preset: ms, wieght: 3}", "row x: wieght=3 is no option here; did you mean weight?"),
        ("x: {preset: ms+psd, weight: heavy}", "row x: --weight heavy must be a number"),
        ("x: {preset: ms+psd, loss: margin(bta=1)}", "row x: --loss margin(bta=1): margin has no setting 'bta'; did you mean beta?"),
        ("x: {preset: ms+psd, omega: 0.9}\ny: {preset: ms}", "row x: --omega 0.9 does nothing with --targets pairwise; it is a setting of"),
        ("x: {preset: ms, weight: 3}\ny: {preset: ms+psd}", "row x: --weight 3.0 does nothing with --teacher none; leave it out, or"),
        ("x: {preset: ms+obd-sd, omega: 1.5}", "row x: --targets batch-diffusion(omega=1.5): --omega 1.5 must lie in [0, 1); try 0.3"),
        ("x: {preset: ms, seed: 3}", "row x: seed is the same for all rows; leave it out there"),
        ("a/b: {preset: ms}", "row='a/b' names a folder; begin with a letter or digit, and use letters, digits and . + - _"),
        ("comparison.json: {preset: ms}", "row='comparison.json' has the name of what the comparison writes beside its rows"),
        ("search: {preset: ms}", "row='search' has the name of what the comparison writes beside its rows; choose another"),
        ("..: {preset: ms}", "row='..' names a folder; begin with a letter or digit"),
        ("-1+2: {preset: ms}", "row='-1+2' names a folder; begin with a letter or digit"),
    ],
)  # fmt: skip
def test_rows_that_are_none(content, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.yaml").write_text(content)
    assert cli.main(["compare", "glyphs", "--rows", "rows.yaml"]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.yaml"]


def test_an_option_for_all_rows_may_do_nothing_in_some(tmp_path, monkeypatch):
    monkeypatch.setattr("obdsd.cli.compare.run", lambda options: rows.update(cli._module("compare").asked_rows(options)))
    rows = {}
    assert cli.main(["compare", "glyphs", "--omega", "0.7", "--weight", "3"]) == 0
    assert {name: str(options.targets) for name, options in rows.items() if options.distils} == {
        "ms+psd": "pairwise",
        "ms+obd-sd": "batch-diffusion(omega=0.7)",
    }
    assert [options.weight for options in rows.values() if options.distils] == [3.0, 3.0]


def test_help_says_which_options_need_rows(capsys):
    assert cli.main(["compare", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "--loss, --teacher, --targets, --matching and --system, in which presets differ, only with --rows" in said
