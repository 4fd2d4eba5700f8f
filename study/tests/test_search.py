"""The search keeps the best of each turn, and every planned run is the one that is meant."""

import json
import subprocess

import numpy as np
import pytest

from obdsd.files import write_json
from study import __main__ as study
from study import plan, reading, records, search, testing, trials, variants
from study.tests.made_up import write
from tests.started import python


@pytest.fixture
def pretend(places, monkeypatch):
    """Runs whose Recall@1 is a made-up function of their options."""
    monkeypatch.setattr(search, "data_of", lambda _: "rows.npz")
    monkeypatch.setattr(search, "recorded", lambda name, _: records.find(name) is not None)

    def as_if(height):
        monkeypatch.setattr(search, "run_all", lambda due, jobs: [write(name, height(options)) for name, options in due.items()])

    return as_if


def test_the_search_keeps_the_best_of_each_turn(places, pretend):
    """It must climb the made-up Recall@1 coordinate by coordinate."""

    def height(options):
        fold = 0.1 if options.val_fold == "1/3" else 0.0
        return 1 - abs(np.log10(options.weight) - 1) / 10 - abs(options.targets.settings.get("omega", 0.3) - 0.1) - options.lr * 100 - fold

    pretend(height)
    search.search("cub-linear-free", ("obd-sd", "psd"), jobs=1)
    search.settle("cub-linear-free")
    file = places / "results" / "cub-linear-free" / "chosen.json"
    chosen = json.loads(file.read_text())
    assert list(chosen) == ["psd", "obd-sd"]  # whose search is finished
    assert chosen["obd-sd"]["settings"] == {"epochs": 40, "lr": 1e-4, "weight": 10.0, "omega": 0.1, "temperature": 1.0}
    assert "omega" not in chosen["psd"]["settings"]
    assert chosen["obd-sd"]["validation"] == pytest.approx(1 - 1e-2 - 0.05)
    assert search.chosen_options("cub-linear-free", "obd-sd").weight == 10.0
    for row in chosen:
        points = {name.split("/")[0] for name in records.records(f"cub-linear-free/search/{row}")}
        assert plan.tried(plan.REGIMES["cub-linear-free"], row) == len(points)
    unfinished = next(name for name in records.records("cub-linear-free/search/psd") if name.endswith("fold-1"))
    records.forget(f"cub-linear-free/search/psd/{unfinished}")
    search.settle("cub-linear-free")  # an unfinished row keeps what was settled
    assert json.loads(file.read_text()) == chosen
    with pytest.raises(SystemExit, match=r"cub-linear-free/chosen.json has no settings for margin; search and settle first"):
        search.chosen_options("cub-linear-free", "margin")


SETTLING = """
import sys
from pathlib import Path
from study import reading, records, search
records.SCRATCH = Path(sys.argv[1])
records.RESULTS = reading.RESULTS = search.RESULTS = Path(sys.argv[2])
search.data_of = lambda regime: "rows.npz"
print("ready", flush=True)
search.settle("cub-linear-free")
"""


def test_settling_waits_for_another_process_and_keeps_what_it_wrote(places):
    """No row has a search here: what the other process settled meanwhile must stay."""
    settled = {"psd": {"validation": 0.5, "settings": {"weight": 3.0}}}
    file, lock = places / "results" / "cub-linear-free" / "chosen.json", records.locked("cub-linear-free")
    lock.acquire()
    with python("-c", SETTLING, records.SCRATCH, records.RESULTS) as process:
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        write_json(file, settled)
        lock.release()
        assert process.wait(60) == 0
    assert json.loads(file.read_text()) == settled


def test_a_setting_far_behind_on_the_first_fold_is_given_up(pretend):
    """λ = 10,000 is four points behind on the first fold and would have won on both; λ = 10, two behind, does win."""
    heights = {10.0: (0.58, 0.63), 1000.0: (0.60, 0.60), 10000.0: (0.56, 0.90)}
    pretend(lambda options: heights.get(options.weight, (0.5, 0.5))[options.val_fold == "1/3"])
    search.search("cub-linear-long", ("psd",), jobs=1)
    assert search.descend("cub-linear-long", "psd") == ({"epochs": 150, "lr": 1e-4, "weight": 10.0}, {})
    second = [name for name in records.records("cub-linear-long/search/psd") if name.endswith("fold-1")]
    assert sorted(name.split("/")[0].rpartition("=")[2] for name in second) == ["10", "1000"]


def test_features_that_do_not_exist_are_asked_for(places):
    with pytest.raises(SystemExit, match=r"cub128.npz does not exist; make it with `python -m study features --cub FOLDER`"):
        search.data_of("cub-linear-free")


def test_every_row_differs_from_every_other():
    made = [plan.options_of(plan.REGIMES["cub-linear-free"], row, "rows.npz", {}).replace(preset="") for row in plan.ROWS]
    assert len({str(options) for options in made}) == len(plan.ROWS)


def test_better_features_of_the_same_data_teach():
    for name, file in (("cub224-gem", plan.CUB_LITE2), ("letters-gem", plan.LETTERS_LITE2)):
        regime = plan.REGIMES[name]
        made = [plan.options_of(regime, row, "rows.npz", plan.beginning(regime, row)) for row in plan.TAUGHT]
        assert all(str(options.teacher).endswith(f"{file})") for options in made)


def test_the_plans_find_their_records(monkeypatch):
    """The records that are committed: of every row that was tested, every variant, every beginning and every trial."""
    planned = {}
    for module in (search, trials, variants):
        monkeypatch.setattr(module, "features", lambda *_: "rows.npz")
    for module in (testing, trials, variants):
        monkeypatch.setattr(module, "run_all", lambda plan, jobs: planned.update(plan))
    for regime in plan.REGIMES:
        testing.on_test_classes(regime, tuple(reading.results_of(regime)), seeds=1)
    trials.run_trials()
    variants.run_variants()
    variants.run_beginnings()
    assert len(planned) > 300
    missing = [name for name, options in planned.items() if not records.recorded(name, options)]
    assert not missing


def test_controls_get_the_settings_of_the_walk_where_they_chose_others(monkeypatch, capsys):
    point = {"weight": 7.0, "omega": 0.2}
    chosen = {"obd-sd": point, "mean-mix": {"weight": 5.0, "omega": 0.9}, "anchor+walk": point, "anchor": {"weight": 7.0}}
    planned = {}
    for module in (search, testing):
        monkeypatch.setattr(module, "data_of", lambda _: "rows.npz")
        monkeypatch.setattr(module, "chosen_of", lambda regime: {row: {"settings": point} for row, point in chosen.items()})
    monkeypatch.setattr(testing, "run_all", lambda plan, jobs: planned.update(plan))
    testing.equal("cub-linear-free", seeds=2)
    names = ("obd-sd/mean-mix", "anchor+walk/anchor+mean-mix")
    assert list(planned) == [f"cub-linear-free/equal/{name}/seed-{seed}" for name in names for seed in (0, 1)]
    assert {(str(run.targets), run.weight) for run in planned.values()} == {("mean-mix(omega=0.2)", 7.0)}
    assert [run.teacher.name for run in planned.values()] == 2 * ["previous-epoch"] + 2 * ["features"]
    assert "anchor has the settings of anchor+walk already" in capsys.readouterr().out  # it knows no ω
    planned.clear()
    chosen["mean-mix"] = point
    del chosen["anchor+walk"]  # a regime that has no such row
    testing.equal("cub-linear-free", seeds=2)
    assert not planned


def test_a_step_gets_the_arguments_of_its_function(monkeypatch, capsys):
    asked = []
    monkeypatch.setitem(study.STEPS, "noise", lambda regime, rows=plan.NOISE_ROWS, jobs=1: asked.append((regime, rows)))
    study.main(["noise", "cub-linear-long"])
    study.main(["noise", "cub-linear-long", "--rows", "balanced,ms", "--jobs", "1"])
    assert asked == [("cub-linear-long", plan.NOISE_ROWS), ("cub-linear-long", ("balanced", "ms"))]
    for words, message in {
        "noise cub-linear-long --rows psdd": "there is no row psdd; there are ms, psd",
        "search": "the following arguments are required: REGIME",
        "--help": "Score heads that were never trained",
    }.items():
        with pytest.raises(SystemExit):
            study.main(words.split())
        assert message in " ".join("".join(capsys.readouterr()).split())


def test_features_that_cannot_be_computed_are_an_error(places, monkeypatch):
    monkeypatch.setattr("obdsd.cli.main", lambda _: 1)
    with pytest.raises(SystemExit, match="the features could not be computed"):
        study.main(["features", "--cub", "nowhere"])


def test_a_weight_that_is_scaled_twice_is_the_one_that_a_record_has():
    (once, _) = plan.weights("anchor-rcl", {"weight": 1.0})
    assert plan.weights("anchor-rcl", once)[0] == {"weight": 0.01}  # not 0.010000000000000002
    assert plan.weights("ms", {"lr": 1e-4}) == ()
