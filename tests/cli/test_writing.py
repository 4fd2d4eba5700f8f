"""Every command that writes, on a full disk, killed while it writes and short of memory: nothing is left half-written, and the same command
then comes to the end of one that was left alone. Real processes, real limits.

`OBDSD_KILLS` says how many of the places are tried; `make test-faults` says 20.
"""

import json
import re
import signal
from functools import partial

import numpy as np
import pytest

from obdsd import cli
from obdsd.models import Embedder
from tests.faulty import full_disk, killed_at, killed_writing, little_memory
from tests.made_up import write_rows
from tests.training.starting import run_command
from tests.training.test_faults import KILLS

SMALL = "--epochs 2 --batch-size 16 --dim 6 --device cpu --no-report"
WRITES = {  # beside the data and a finished run
    "train": f"train rows.npz --out made --resume --val-fraction 0.3 --select best --evaluate-every 1 --preset ms+psd {SMALL}",
    "compare": f"compare rows.npz --presets ms,ms+psd --seeds 1 --out made {SMALL}",
    "report": "report run --out made.html --device cpu",
    "embed": "embed run rows.npz --out made.parquet --device cpu",
    "index": "index run rows.npz --out made.index --device cpu",
    "search": "search first.index rows.npz --out made.html --device cpu",
    "export": "export head --out made.onnx",
    "join": "join tiny-conv:none head --out made",
    "evaluate": "evaluate run rows.npz --out made.json --per-class --device cpu",
    "reproduce": "reproduce lambda --scale small --data rows.npz --only lambda-100 --seeds 1 --out made",
}
READS = {"serve", "verify", "data", "presets", "parts", "info"}  # what data get writes: test_get.py
CHANGES = {"calibrate"}  # one file of an index, replaced as a whole: test_calibrate.py
OWN = ("seconds", "items_per_second", "time_ratio", "source", "sources")  # what a clock says, and where the data lie
EVALUATION = "obdsd.evaluation.retrieval:rankings"  # where every score begins


def test_every_command_is_here():
    assert WRITES.keys() | READS | CHANGES == {*cli.COMMANDS}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with data and a finished run, for commands to run in; a file for each that was left alone is made on demand."""
    folder = tmp_path_factory.mktemp("writing")

    def make(name):
        (folder / name).mkdir()
        write_rows(folder / name / "rows.npz", 120, 2, 12)
        Embedder("features", features=128, dim=4).save(folder / name / "head")
        if name != "first":
            for made in ("run", "first.index"):
                (folder / name / made).symlink_to(folder / "first" / made)
        return folder / name

    assert run_command(WRITES["train"].replace("made", "run").split(), make("first"))[0] == 0
    assert run_command(WRITES["index"].replace("made", "first").split(), folder / "first")[0] == 0
    return make


def contents(folder):
    """What a command wrote there by its names, without checkpoints and what is a folder's own."""
    kept = [file for file in written(folder) if not {"checkpoints", "partial"} & {*file.parts} and not file.name.startswith(".")]
    return {str(file.relative_to(folder)): content(file) for file in kept}


def written(folder):
    """The files that a command wrote: all are called `made`, or lie below it."""
    return [file for top in folder.glob("made*") for file in (top, *top.rglob("*")) if file.is_file()]


def content(file):
    if file.suffix == ".jsonl":
        return [comparable(json.loads(line)) for line in file.read_text().splitlines()]
    if file.name == "times.json":
        return list(json.loads(file.read_text()))
    if file.suffix == ".json":
        return comparable(json.loads(file.read_text()))
    if file.suffix in (".md", ".csv", ".html"):  # with times that were measured
        return re.sub(r"[-+]?\d+(\.\d+)?", "", file.read_text())
    return file.read_bytes()


def comparable(value):
    if isinstance(value, dict):
        return {name: comparable(entry) for name, entry in value.items() if name not in OWN}
    return [comparable(entry) for entry in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def alone(place):
    """`alone(words)`: the folder in which a command was left alone."""
    made = {}

    def make(words):
        if words not in made:
            made[words] = place(f"alone-{len(made)}")
            assert run_command(words.split(), made[words])[0] == 0
        return made[words]

    return make


def some(places, number):
    """That many of them, spread evenly, the last among them."""
    return [places[round(i)] for i in np.linspace(len(places) - 1, 0, min(number, len(places)))]


def sizes(folder):
    """Bytes of the files that a command wrote, all different."""
    return sorted({file.stat().st_size for file in written(folder)} - {0})


def disturbed(words, folder, whole, faults):
    """The exit code and the last line of the command with each fault in turn. Whatever has its name afterwards is whole; then the command,
    left alone, comes to the same end."""
    expected = contents(whole)
    for fault in faults:
        code, said = run_command(words.split(), folder, fault)
        for name, found in contents(folder).items():
            assert found == expected[name] or name.endswith(".jsonl"), (name, fault)  # to those, lines are added one by one
        yield code, said.rstrip("\n").rpartition("\n")[2]
    assert run_command(words.split(), folder)[0] == 0
    assert contents(folder) == expected


@pytest.mark.parametrize("command", WRITES)
def test_a_full_disk_is_one_line_and_a_kill_leaves_nothing_half_written(command, place, alone):
    """Killed in the middle of a file, before a complete one gets its name, and while it evaluates."""
    whole, number = alone(WRITES[command]), max(1, KILLS // 3)
    faults = [partial(full_disk, size // 2) for size in some(sizes(whole), number)]
    full = len(faults)
    faults += [partial(killed_writing, size // 2) for size in some(sizes(whole), number)]
    faults += [partial(killed_at, place, n) for place in ("os:replace", EVALUATION) for n in range(1, number + 1)]
    ends = list(disturbed(WRITES[command], place(command), whole, faults))
    for code, line in ends[:full]:
        assert (code, line.startswith("obdsd: "), "cannot be written (File too large)" in line) == (2, True, True), line
    codes = [code for code, _ in ends[full:]]
    assert codes[0] == -signal.SIGXFSZ
    assert {*codes} <= {-signal.SIGXFSZ, -signal.SIGKILL, 0}
    print(f"{command}: {full} times on a full disk, killed {sum(code < 0 for code in codes)} times")


def test_too_little_memory_is_one_line(place, alone):
    """A training of a wide head gets so many MiB more than it begins with; it ends at one place or another, or finds them enough."""
    words = f"{WRITES['train']} --head two-layer --hidden 60000"
    faults = [partial(little_memory, spare << 20) for spare in some(range(8, 0, -1), KILLS)]
    ends = list(disturbed(words, place("memory"), alone(words), faults))
    assert ends[0][0] == 2
    assert ends[0][1].startswith("obdsd: memory ran out ([enforce fail at alloc_cpu.cpp")
    print(f"memory ran out {sum(code != 0 for code, _ in ends)} times")
