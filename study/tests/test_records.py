"""Nothing is run twice, no record is lost, and none is taken for another run's."""

import json
import lzma
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from obdsd.errors import InputError
from obdsd.options import TrainOptions, as_dict
from study import records
from study.tests.made_up import interrupt, small


def test_a_run_becomes_a_record_and_is_not_repeated(places, rows, monkeypatch):
    records.run_all({"r/a/seed-0": small(rows)}, jobs=1)
    (name, record), *others = records.records("r/a").items()
    assert (name, others) == ("seed-0", [])
    assert record["options"]["weight"] == small(rows).weight
    assert "data" not in record["options"]
    assert [point["epoch"] for point in record["curve"]] == [0, 1, 2, 3]
    queries = np.array(record["per_class"]["queries"])
    assert np.isclose((queries * record["per_class"]["recall@1"]).sum() / queries.sum(), record["scores"]["recall@1"], atol=1e-5)
    assert not (places / "scratch" / "r" / "a" / "seed-0").exists()
    monkeypatch.setattr(records, "carry_out", lambda plan, *_: pytest.fail("again") if plan else None)
    records.run_all({"r/a/seed-0": small(rows)}, jobs=1)


def test_a_record_keeps_the_re_ranked_scores(places, rows):
    records.run_all({"r/plain": small(rows), "r/walk": small(rows, rerank="diffusion")}, jobs=1)
    plain, walk = records.find("r/plain"), records.find("r/walk")
    assert plain["reranked"] == {}
    assert list(walk["reranked"]) == ["diffusion"]
    assert {"recall@1", "map@r"} <= walk["reranked"]["diffusion"].keys()
    assert plain["scores"] == walk["scores"]
    assert walk["reranked"]["diffusion"] != {name: walk["scores"][name] for name in walk["reranked"]["diffusion"]}


def test_a_record_of_other_options_is_refused(places, rows):
    records.add("r/a", {"options": records.settings_of(small(rows))})
    message = r"record of r/a has other options than planned \(lr, seed\); remove it with `python -m study forget r/a`, or give the run"
    with pytest.raises(SystemExit, match=message):
        records.run_all({"r/a": small(rows, seed=1, lr=0.5)}, jobs=1)
    records.forget("r/a")
    assert not records.recorded("r/a", small(rows, seed=1, lr=0.5))
    with pytest.raises(SystemExit, match="there is no record of r/a"):
        records.forget("r/a")


def test_an_option_that_is_newer_than_the_record_is_at_its_default(places, rows):
    records.add("r/a", {"options": {name: value for name, value in records.settings_of(small(rows)).items() if name != "clip"}})
    assert records.recorded("r/a", small(rows))
    with pytest.raises(SystemExit, match=r"\(clip\)"):
        records.recorded("r/a", small(rows, clip=0.5))


def test_a_record_of_another_version_is_refused(places):
    records.add("r/a", {"format": 99})
    with pytest.raises(InputError, match=r"runs.jsonl.xz: is a record of another version of obdsd \(format 99, not 1\); update obdsd"):
        records.records("r")


def test_records_hold_options_as_a_training_writes_them():
    """The first run of every row and stage that is committed: a later version must read its options and write the same."""
    import study.parts  # noqa: F401

    for file in sorted(records.RESULTS.glob(f"*/{records.RUNS}")):
        rows = {}
        for name, record in records.records(file.parent.name).items():
            rows.setdefault(name.rpartition("/")[0], record.get("options", {}))
        for name, options in rows.items():
            written = as_dict(TrainOptions.from_dict({"data": "rows.npz", **options}))
            assert options == {option: written[option] for option in options}, f"{file.parent.name}/{name}"


def test_a_run_that_finished_without_its_record_is_not_lost(places, rows, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(records, "keep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            records.run_all({"r/a": small(rows)}, jobs=1)
    records.run_all({"r/a": small(rows)}, jobs=1)
    assert list(records.records("r")) == ["a"]


def test_a_regime_is_one_file_with_a_sorted_line_for_each_run(places):
    for name, number in (("b/seed-0", 1), ("a, ω=0.3/seed-1", 2), ("a, ω=0.3/seed-0", 3), ("b/seed-0", 4)):
        records.add(f"r/{name}", {"number": number})
    files = [file for file in (places / "results").rglob("*") if file.is_file()]
    assert files == [places / "results" / "r" / "runs.jsonl.xz"]
    lines = [json.loads(line) for line in lzma.decompress(files[0].read_bytes()).splitlines()]
    assert lines == [
        {"name": "a, ω=0.3/seed-0", "number": 3},
        {"name": "a, ω=0.3/seed-1", "number": 2},
        {"name": "b/seed-0", "number": 4},
    ]
    assert records.records("r/a, ω=0.3") == {"seed-0": {"number": 3}, "seed-1": {"number": 2}}
    assert records.records("r/a") == records.records("another") == {}
    before = files[0].read_bytes()
    records.add("r/b/seed-0", {"number": 4})
    assert files[0].read_bytes() == before


def test_runs_that_finish_at_the_same_time_are_all_kept(places):
    names = [f"r/{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: records.add(name, {"scores": list(range(1000))}), names))
    assert len(records.records("r")) == len(names)


def test_a_file_that_another_process_changed_is_read_again(places):
    records.add("r/a", {"number": 1})
    first = records.records("r")
    assert records.records("r")["a"] is first["a"]  # not read twice
    file = places / "results" / "r" / records.RUNS
    other = file.with_suffix(".new")
    other.write_bytes(lzma.compress(b'{"name": "b", "number": 2}\n'))
    other.replace(file)
    assert records.records("r") == {"b": {"number": 2}}


def test_an_interrupted_write_leaves_the_records_as_they_were(places, monkeypatch):
    records.add("r/a", {"number": 1})
    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        records.add("r/b", {"number": 2})
    assert records.records("r") == {"a": {"number": 1}}


def test_new_records_do_not_make_the_commit_dirty(tmp_path):
    (tmp_path / "results").mkdir()
    for file in ("results/runs", "code.py"):
        (tmp_path / file).write_text("1")
    for command in ("init", "add .", "-c user.name=a -c user.email=a@b.c commit -m first"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True, capture_output=True)
    clean = records.commit_of(tmp_path)
    (tmp_path / "results" / "runs").write_text("2")
    assert records.commit_of(tmp_path) == clean
    (tmp_path / "code.py").write_text("2")
    assert records.commit_of(tmp_path) == f"{clean}-dirty"
