"""`obdsd report`, and the page that a training and a comparison leave behind."""

import json

import pytest

from obdsd import cli
from tests.made_up import write_rows

SMALL = ["--epochs", "2", "--batch-size", "12", "--dim", "5", "--device", "cpu", "--evaluate-every", "0"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two runs in one folder, without reports."""
    folder = tmp_path_factory.mktemp("trained")
    rows = write_rows(folder / "rows.npz", 20, 6, 12)
    for name in ("ms", "ms+obd-sd"):
        assert cli.main(["train", rows, "--preset", name, "--out", str(folder / name), "--report", "false", *SMALL]) == 0
        assert not (folder / name / "report.html").exists()
    return folder


def test_a_report_of_two_runs(trained, tmp_path, capsys):
    page = tmp_path / "new" / "both.html"
    assert cli.main(["report", "--out", str(page), str(trained / "ms"), str(trained / "ms+obd-sd"), "--seed", "3"]) == 0
    assert capsys.readouterr().out == f"report: {page}\n"
    written = page.read_text()
    assert written.startswith("<!")
    recall = json.loads((trained / "ms+obd-sd" / "result.json").read_text())["scores"]["recall@1"]
    assert f"ms+obd-sd: {100 * recall:.1f} %" in written
    assert 'src="http' not in written


def test_a_training_leaves_its_report(trained, tmp_path, capsys):
    out = tmp_path / "run"
    assert cli.main(["train", str(trained / "rows.npz"), "--preset", "ms+psd", "--out", str(out), *SMALL]) == 0
    assert f"report: {out / 'report.html'}\n" in capsys.readouterr().out
    assert "ms+psd" in (out / "report.html").read_text()
    assert "report" not in (out / "config.yaml").read_text()


def test_a_comparison_leaves_its_report(trained, tmp_path, capsys):
    out = tmp_path / "compared"
    words = ["compare", str(trained / "rows.npz"), "--presets", "ms,ms+psd", "--seeds", "2", "--out", str(out), *SMALL]
    assert cli.main([*words, "--report", "false"]) == 0
    assert list(out.rglob("report.html")) == []
    capsys.readouterr()
    assert cli.main(words) == 0  # nothing is trained again
    assert f"report: {out / 'report.html'}\n" in capsys.readouterr().out
    assert [path.parent for path in out.rglob("report.html")] == [out]
    assert (out / "comparison.md").read_text().splitlines()[-1] in (out / "report.html").read_text()


def test_a_report_that_fails_leaves_the_run_complete(trained, tmp_path, capsys):
    out = tmp_path / "run"
    (out / "report.html").mkdir(parents=True)
    assert cli.main(["train", str(trained / "rows.npz"), "--preset", "ms", "--out", str(out), *SMALL]) == 2
    printed, said = capsys.readouterr()
    assert f"scores: {out / 'result.json'}" in printed
    last = said.splitlines()[-1]
    assert last == (
        f"obdsd: {out} is complete, but its report could not be made: {out / 'report.html'}: cannot be written (it is a folder); "
        "choose another place"
    )
    assert (out / "result.json").exists()


MISTAKES = [
    ([], "runs must be given; add --help to see how"),
    (["nowhere"], "nowhere: no such folder, give the folder of a finished obdsd train or obdsd compare"),
    (["ms", "nowhere", "."], "nowhere: no such folder, give the folder of a finished obdsd train or obdsd compare; .: holds no run (no "),
    (["ms", "--out", "page.txt"], "out='page.txt' must end in .html; rename it"),
    (["ms", "--map", "pca"], "map=pca must be one of 'tsne', 'umap'"),
    (["ms", "--points", "trian"], "points=trian must be one of 'test', 'train'; did you mean train?"),
    (["ms", "--seed", "-1"], "seed=-1 must be a whole number from 0"),
    (["ms", "--queries", "none.txt"], "none.txt: No such file or directory"),
    (["ms", "--querries", "x"], "unrecognized arguments: --querries x; did you mean --queries?"),
    (["ms", "--device", "abacus"], "device='abacus'"),
]


@pytest.mark.parametrize(("words", "line"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_mistake_is_one_line_and_nothing_is_written(trained, monkeypatch, capsys, words, line):
    monkeypatch.chdir(trained)
    before = sorted(trained.rglob("*"))
    assert cli.main(["report", *words]) == 2
    printed, said = capsys.readouterr()
    assert printed == ""
    assert said.startswith(f"obdsd: {line}")
    assert said.count("\n") == 1
    assert sorted(trained.rglob("*")) == before


def test_a_page_that_cannot_be_replaced_stays(trained, tmp_path, capsys, full_disk):
    page = tmp_path / "report.html"
    page.write_text("before")
    assert cli.main(["report", str(trained / "ms"), "--out", str(page)]) == 2
    assert "cannot be written (No space left on device)" in capsys.readouterr().err
    assert page.read_text() == "before"
