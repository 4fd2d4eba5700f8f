"""`obdsd verify`: what agrees and what does not, a line each, and an exit code for scripts."""

import csv
import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout

import pytest

from obdsd import cli
from obdsd.experiments.comparison import read_comparison
from obdsd.experiments.tables import verify_tables


def test_a_run_is_verified_from_its_folder_alone(obdsd, trained, tmp_path):
    code, printed, _ = obdsd("verify", trained.folder, "--device", "cpu")
    assert (code, {line.split()[0] for line in printed.splitlines()}) == (0, {"agrees"})
    run = shutil.copytree(trained.folder, tmp_path / "run")
    classes = json.loads((run / "per_class.json").read_text())
    classes["recall@1"] = [1.5] * len(classes["recall@1"])
    (run / "per_class.json").write_text(json.dumps(classes))
    code, printed, told = obdsd("verify", run, "--device", "cpu")
    *lines, last = printed.splitlines()
    assert (code, lines[3], last) == (2, "differs  the scores are those of the rows", "         and 3 more")
    assert lines[4].startswith(f"         {classes['labels'][0]}: recall@1 of per_class.json 1.5, computed again ")
    assert len(lines) == 4 + 5
    assert told == f"obdsd: {run}: 1 of 4 checks found differences; restore the files, or train again\n"


@pytest.fixture(scope="module")
def compared(rows, tmp_path_factory):
    """A finished comparison."""
    out = tmp_path_factory.mktemp("compared") / "made"
    small = ["--epochs", "1", "--batch-size", "12", "--dim", "5", "--device", "cpu", "--no-report"]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert cli.main(["compare", rows, "--presets", "ms,ms+psd", "--seeds", "1", "--out", str(out), *small]) == 0
    return out


def test_a_comparison_is_its_runs_and_tables(obdsd, compared, tmp_path):
    out = shutil.copytree(compared, tmp_path / "moved")
    code, printed, _ = obdsd("verify", out)
    assert (code, printed.count("agrees"), printed.count("differs")) == (0, 1 + 2 * 4, 0)
    for name in ("comparison.csv", "comparison.md", "comparison.json"):
        content = (out / name).read_bytes()
        (out / name).write_bytes(content.replace(b"0", b"1", 1))
        code, printed, _ = obdsd("verify", out)
        first, second, *_ = printed.splitlines()
        assert (code, first, second.strip()) == (2, "differs  the tables follow from the runs", f"{name} is not what the runs say")
        (out / name).write_bytes(content)
    (out / "ms" / "seed-0" / "model" / "model.safetensors").unlink()
    assert obdsd("verify", out)[::2] == (2, f"obdsd: {out}/ms/seed-0/model/model.safetensors: No such file or directory\n")


def as_an_earlier_version(out):
    """The same tables with other titles, fewer columns and other words."""
    table = list(csv.reader((out / "comparison.csv").read_text().splitlines()))
    gone = table[0].index("AMI")
    table = [row[:gone] + row[gone + 1 :] for row in table]
    table[0] = [title.replace(", training set", "") for title in table[0]]
    (out / "comparison.csv").write_text("".join(",".join(row) + "\n" for row in table))
    lines = ["| " + " | ".join(row) + " |" for row in table]
    prose = (
        (out / "comparison.md").read_text().split("\n\n", 1)[1].replace("Differences are paired", "Gains are paired").replace("points", "%")
    )
    (out / "comparison.md").write_text("\n".join([lines[0], "|" + " --- |" * len(table[0]), *lines[1:]]) + "\n\n" + prose)
    record = json.loads((out / "comparison.json").read_text())
    for line in record["lines"]:
        line.pop("weight")
        for numbers in (line["means"], line["differences"] or {}):
            numbers.pop("ami", None)
    (out / "comparison.json").write_text(json.dumps(record))
    return {name: (out / name).read_text() for name in ("comparison.csv", "comparison.md", "comparison.json")}


def without_a_row(text):
    return "\n".join(line for line in text.splitlines() if not line.removeprefix("| ").startswith("ms+psd"))


def test_tables_of_another_version_are_judged_by_their_numbers(compared, tmp_path):
    out = shutil.copytree(compared, tmp_path / "earlier")
    _, comparison = read_comparison(out)
    texts = as_an_earlier_version(out)
    assert verify_tables(comparison, out).differences == []
    for name, text in texts.items():
        shown = comparison.lines[1].means["recall@1"].mean
        wrong = {text.replace(f"{100 * shown:.2f}", "99.99") if name != "comparison.json" else text.replace(str(shown), "0.9999")}
        wrong |= {without_a_row(text)} if name != "comparison.json" else set()
        for other in wrong:
            assert other != text
            (out / name).write_text(other)
            assert verify_tables(comparison, out).differences == [f"{name} is not what the runs say"]
        (out / name).write_text(text)
    (out / "comparison.csv").unlink()
    (out / "comparison.md").write_bytes(b"\xff")
    assert verify_tables(comparison, out).differences == [
        "comparison.csv is not what the runs say",
        "comparison.md is not what the runs say",
    ]
