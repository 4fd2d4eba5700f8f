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


def changed_data(folder):
    record = json.loads((folder / "run.json").read_text())
    record["data"]["test"]["items"] += 1
    (folder / "run.json").write_text(json.dumps(record))


FAULTS = {
    r"its training is not finished \(no result.json\), go on with it by obdsd train --resume": lambda run: (run / "result.json").unlink(),
    "model.json: no such file": lambda run: shutil.rmtree(run / "model"),
    "changed since the run in .* was trained; restore it": changed_data,
}


@pytest.mark.parametrize("line", FAULTS)
def test_a_folder_that_cannot_be_shown_is_named(compared, tmp_path, line):
    folder = shutil.copytree(compared / "ms" / "seed-3", tmp_path / "broken")
    FAULTS[line](folder)
    with pytest.raises(InputError, match=line) as refused:
        gather([folder])
    assert str(folder) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_folder_that_is_wrong_is_named_in_one_line(compared, tmp_path):
    broken = shutil.copytree(compared, tmp_path / "broken")
    (broken / "ms" / "seed-4" / "result.json").unlink()
    shutil.copytree(compared / "ms", tmp_path / "begun" / "ms")
    begun = rf"{tmp_path}/begun: the comparison is not finished \(no comparison.json\), the same obdsd compare goes on with it"
    with pytest.raises(
        InputError, match=rf"^{broken}/ms/seed-4: its training is not finished.*; {tmp_path}/a: no such folder, .*; {begun}$"
    ):
        gather([broken, tmp_path / "a", compared, tmp_path / "begun"])


def test_runs_on_different_items_are_not_shown_together(compared, photographs):
    with pytest.raises(InputError, match=r"seed-3 and .*run differ in data; they were scored on different items, report them apart"):
        gather([compared / "ms" / "seed-3", photographs / "run"])
