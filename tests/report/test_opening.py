"""Which runs a report opens, what it calls them, and the one line for what it cannot show."""

import json
import shutil

import pytest

from obdsd.errors import InputError
from obdsd.report import gather
from obdsd.report.opening import open_runs


def test_runs_are_told_apart(compared, tmp_path):
    one, two = seeds = [compared / "ms" / f"seed-{seed}" for seed in (3, 4)]
    opened, comparison = open_runs(seeds)
    assert {name: record.folder for name, record in opened.items()} == {"ms, seed 3": one, "ms, seed 4": two}
    assert comparison is None
    copy = shutil.copytree(one, tmp_path / "copy")
    for folders, names in (
        ([compared], ["ms", "ms+psd", "ms+obd-sd"]),
        ([compared, two], ["ms, seed 3", "ms+psd, seed 3", "ms+obd-sd, seed 3", "ms, seed 4"]),
        ([one, copy], [str(one), str(copy)]),
    ):
        assert list(open_runs(folders)[0]) == names
    with pytest.raises(InputError, match=rf"^{one}: is given twice; give each run once$"):
        open_runs([two, one, one])


def broken(folder, tmp_path, change):
    shutil.copytree(folder, tmp_path / "broken")
    change(tmp_path / "broken")
    return tmp_path / "broken"


def rewrite(name, change):
    """Breaks a folder: what a file of it holds is changed."""
    return lambda folder: (folder / name).write_text(change((folder / name).read_text()))


def changed_data(text):
    record = json.loads(text)
    record["data"]["test"]["items"] += 1
    return json.dumps(record)


def failed(folder):
    (folder / "result.json").unlink()
    (folder / "failure.json").write_text('{"fault": "the loss is not finite"}')


def no_run(folder):
    for name in ("config.yaml", "run.json"):
        (folder / name).unlink()


FAULTS = {
    r"its training is not finished \(no result.json\), go on with it by obdsd train --resume": lambda folder: (
        folder / "result.json"
    ).unlink(),
    r"its training failed \(the loss is not finite\), train it anew": failed,
    r"holds no run \(no config.yaml\), give the folder of a finished": no_run,
    r"result.json: (is no|cannot be read|must hold)": rewrite("result.json", lambda text: "{"),
    "its result has no 'scores'": rewrite("result.json", lambda text: "{}"),
    "config.yaml: zeal=1 is no option here": rewrite("config.yaml", lambda text: f"{text}zeal: 1\n"),
    r"is a run of another version of obdsd \(format 1, not \d+\); use that version": rewrite(
        "run.json", lambda text: json.dumps({**json.loads(text), "format": 1})
    ),
    "model.json: no such file": lambda folder: shutil.rmtree(folder / "model"),
    "changed since the run in .* was trained; restore it": rewrite("run.json", changed_data),
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
