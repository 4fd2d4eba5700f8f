"""`obdsd report`, and the page that a training and a comparison leave behind."""

import pytest

from obdsd import cli
from obdsd.training import RunRecord
from tests.refusing import mistakes
from tests.report.conftest import FLAGS, compare_words

SMALL = [*FLAGS, "--epochs", "1", "--test-every", "0", "--no-reference"]


def test_a_report_of_two_runs(compared, tmp_path, capsys):
    page, ours = tmp_path / "new" / "both.html", compared / "ms+obd-sd" / "seed-3"
    assert cli.main(["report", "--out", str(page), str(compared / "ms" / "seed-3"), str(ours), "--seed", "3"]) == 0
    assert capsys.readouterr().out == f"report: {page}\n"
    written = page.read_text()
    assert written.startswith("<!")
    assert f"ms+obd-sd: {100 * RunRecord.read(ours).scores['recall@1']:.1f} %" in written
    assert 'src="http' not in written


def test_a_training_leaves_its_report(compared, tmp_path, capsys):
    out = tmp_path / "run"
    assert cli.main(["train", str(compared.parent / "rows.npz"), "--preset", "ms+psd", *SMALL, "--out", str(out)]) == 0
    assert f"report: {out / 'report.html'}\n" in capsys.readouterr().out
    assert "ms+psd" in (out / "report.html").read_text()
    assert "report" not in (out / "config.yaml").read_text()


def test_a_comparison_leaves_its_report(compared, capsys):
    assert list(compared.rglob("report.html")) == []  # it was made with --no-report
    written = (compared / "ms" / "seed-3" / "result.json").stat().st_mtime_ns
    try:
        assert cli.main(compare_words(compared.parent)) == 0
        assert (compared / "ms" / "seed-3" / "result.json").stat().st_mtime_ns == written  # nothing is trained again
        assert f"report: {compared / 'report.html'}\n" in capsys.readouterr().out
        assert [path.parent for path in compared.rglob("report.html")] == [compared]
        assert (compared / "comparison.md").read_text().splitlines()[-1] in (compared / "report.html").read_text()
    finally:
        (compared / "report.html").unlink(missing_ok=True)


def test_a_report_that_fails_leaves_the_run_complete(compared, tmp_path, capsys):
    out = tmp_path / "run"
    (out / "report.html").mkdir(parents=True)
    assert cli.main(["train", str(compared.parent / "rows.npz"), "--preset", "ms", *SMALL, "--out", str(out)]) == 0
    printed, said = capsys.readouterr()
    assert f"scores: {out / 'result.json'}" in printed
    reason = f"{out / 'report.html'}: cannot be written (it is a folder); choose another place"
    assert said.splitlines()[-1] == f"obdsd: {out} is complete, but its report could not be made: {reason}"
    assert (out / "result.json").exists()
    assert cli.main(["train", str(compared.parent / "rows.npz"), "--preset", "ms", *SMALL, "--out", str(out), "--resume"]) == 0
    assert capsys.readouterr().err == f"{out} is finished: nothing was left to do\n"  # and no report is tried again


NOWHERE = "nowhere: no such folder, give the folder of a finished obdsd train or obdsd compare"
MISTAKES = [
    ([], "RUNS must be given: obdsd report RUNS"),
    (["nowhere"], NOWHERE),
    (["ms/seed-3", "nowhere", "ms"], f"{NOWHERE}; ms: holds no run (no "),
    (["ms/seed-3", "--out", "page.txt"], "--out 'page.txt' must end in .html; rename it"),
    (["ms/seed-3", "--points", "trian"], "--points trian must be one of test, train; did you mean train?"),
    (["ms/seed-3", "--queries", "none.txt"], "none.txt: No such file or directory"),
    (["ms/seed-3", "--device", "abacus"], "--device 'abacus'"),
]


here = pytest.fixture(lambda compared: compared)
test_a_mistake_is_one_line_and_nothing_is_written = mistakes("report", MISTAKES)


def test_a_page_that_cannot_be_replaced_stays(compared, tmp_path, capsys, full_disk):
    page = tmp_path / "report.html"
    page.write_text("before")
    assert cli.main(["report", str(compared / "ms" / "seed-3"), "--out", str(page)]) == 2
    assert "cannot be written (No space left on device)" in capsys.readouterr().err
    assert page.read_text() == "before"
