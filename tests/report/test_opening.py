"""Which runs a report opens, what it calls them, and the one line for what it cannot show."""

import json
import shutil

import pytest

from obdsd.errors import InputError
from obdsd.report import gather
from obdsd.report.opening import open_runs


def test_runs_are_told_apart(compared):
    assert list(open_runs([compared]).runs) == ["ms", "ms+psd", "ms+obd-sd"]
    seeds = [compared / "ms" / f"seed-{seed}" for seed in (3, 4)]
    opened = open_runs(seeds)
    assert list(opened.runs) == ["ms, seed 3", "ms, seed 4"]
    assert [record.folder for record in opened.runs.values()] == seeds
    assert opened.comparison is None
    assert list(open_runs([compared, seeds[1]]).runs) == ["ms, seed 3", "ms+psd, seed 3", "ms+obd-sd, seed 3", "ms, seed 4"]


def test_runs_that_only_their_folders_tell_apart(compared, tmp_path):
    shutil.copytree(compared / "ms" / "seed-3", tmp_path / "copy")
    folders = [compared / "ms" / "seed-3", tmp_path / "copy"]
    assert list(open_runs(folders).runs) == list(map(str, folders))


def test_a_run_is_given_once(compared):
    run = compared / "ms" / "seed-3"
    with pytest.raises(InputError, match=rf"^{run}: is given twice; give each run once$"):
        open_runs([compared / "ms" / "seed-4", run, run])


def broken(folder, tmp_path, change):
    shutil.copytree(folder, tmp_path / "broken")
    change(tmp_path / "broken")
    return tmp_path / "broken"


def other_data(folder):
    record = json.loads((folder / "run.json").read_text())
    record["data"]["test"]["items"] += 1
    (folder / "run.json").write_text(json.dumps(record))


def other_format(folder):
    (folder / "run.json").write_text(json.dumps({**json.loads((folder / "run.json").read_text()), "format": 1}))


def failed(folder):
    (folder / "result.json").unlink()
    (folder / "failure.json").write_text('{"fault": "the loss is not finite"}')


def other_option(folder):
    (folder / "config.yaml").write_text((folder / "config.yaml").read_text() + "zeal: 1\n")


def no_run(folder):
    for name in ("config.yaml", "run.json"):
        (folder / name).unlink()


FAULTS = {
    r"its training is not finished \(no result.json\), go on with it by obdsd train --resume": lambda folder: (
        folder / "result.json"
    ).unlink(),
    r"its training failed \(the loss is not finite\), train it anew": failed,
    r"holds no run \(no config.yaml\), give the folder of a finished": no_run,
    r"result.json: (is no|cannot be read|must hold)": lambda folder: (folder / "result.json").write_text("{"),
    "its result has no 'scores'": lambda folder: (folder / "result.json").write_text("{}"),
    "config.yaml: zeal=1 is no option here": other_option,
    r"is a run of another version of obdsd \(format 1, not \d+\); use that version": other_format,
    "model.json: no such file": lambda folder: shutil.rmtree(folder / "model"),
    "changed since the run in .* was trained; restore it": other_data,
}


@pytest.mark.parametrize("line", FAULTS)
def test_a_folder_that_cannot_be_shown_is_named(compared, tmp_path, line):
    folder = broken(compared / "ms" / "seed-3", tmp_path, FAULTS[line])
    with pytest.raises(InputError, match=line) as refused:
        gather([folder])
    assert str(folder) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_comparisons_that_cannot_be_shown(compared, tmp_path):
    unfinished = broken(compared, tmp_path, lambda folder: (folder / "comparison.json").unlink())
    with pytest.raises(InputError, match=r"broken: the comparison is not finished \(no comparison.json\), the same obdsd compare goes on"):
        gather([unfinished])
    (unfinished / "comparison.json").write_text("{}")
    with pytest.raises(InputError, match=r"comparison.json: is no comparison of obdsd; give the folder"):
        gather([unfinished])
    shutil.copy(compared / "comparison.json", unfinished)
    (unfinished / "ms" / "seed-4" / "result.json").unlink()
    with pytest.raises(InputError, match=r"broken/ms/seed-4: its training is not finished"):
        gather([unfinished])


def test_every_folder_that_is_wrong_is_named_in_one_line(compared, tmp_path):
    with pytest.raises(InputError, match=rf"{tmp_path}/a: no such folder, .*; {tmp_path}: holds no run"):
        gather([tmp_path / "a", compared, tmp_path])


def test_runs_on_different_items_are_not_shown_together(compared, photographs):
    with pytest.raises(InputError, match=r"seed-3 and .*run differ in data; they were scored on different items, report them apart"):
        gather([compared / "ms" / "seed-3", photographs / "run"])
