"""The arena's list: every row on every kind of data, at one budget, with one main setting."""

import pytest

from obdsd import arena
from obdsd.catalogue import TARGETS
from obdsd.errors import InputError
from obdsd.options import as_dict
from obdsd.presets import LOSSES, NAMES, preset, resolve_with_idle
from tests.test_presets import SOURCES


def rows_on(data, similarities=None, **for_all):
    return {
        name: resolve_with_idle({"data": data, **entry, **for_all})[0] for name, entry in arena.entries(data, for_all, similarities).items()
    }


@pytest.mark.parametrize("data", SOURCES.values(), ids=SOURCES.keys())
def test_all_rows_see_as_much_as_the_baseline_but_for_what_they_cannot_do_without(data):
    rows = rows_on(data, similarities="alike.csv")
    assert [*rows] == [*arena.ROWS]
    ground = as_dict(rows["ms"])
    plain = {name: as_dict(row) for name, row in rows.items()}
    kept = {name: {option: row[option] for option in arena.EQUAL if row[option] != ground[option]} for name, row in plain.items()}
    assert {name: own for name, own in kept.items() if own} == arena.NEEDS
    assert ground == as_dict(preset("ms", data))


def test_what_a_preset_says_of_the_budget_does_not_count(monkeypatch):
    monkeypatch.setitem(LOSSES, "epshn", {"loss": "epshn", "epochs": 99, "lr": 0.5})
    row = rows_on("x.npz")["epshn"]
    assert (row.epochs, row.lr, row.per_class) == (40, 1e-4, 4)
    given = rows_on("x.npz", epochs=7, per_class=8)["epshn"]
    assert (given.epochs, given.per_class) == (7, 8)


def test_the_list_holds_the_losses_the_papers_rows_and_its_controls():
    assert arena.ROWS[0] == "ms"
    assert {"ms-tuned", "margin", "supcon", "proxy-anchor", "ms+obd-sd", "ms+psd", "ms+mean-mix", "ms+uniform-mix", "ms+flat"} <= {
        *arena.ROWS
    }
    assert {"supcon+soft-labels", "supcon+smooth-labels"} <= {*arena.ROWS}
    assert len({*arena.ROWS}) == len(arena.ROWS)
    assert {*arena.ROWS} <= {*NAMES}
    assert {*arena.NEEDS} <= {*arena.ROWS}


def test_a_row_with_batches_of_its_own_has_as_many_as_the_baseline():
    assert str(rows_on("x.npz")["mic"].system) == "mic(within=true)"


def test_without_a_file_of_similarities_their_row_is_left_out():
    assert arena.GUIDED not in rows_on("x.npz")
    assert arena.without(None) == {"ms+plg": "needs a file of similarities between the classes (--similarities)"}
    assert arena.without("alike.csv") == {}
    row = rows_on("x.npz", similarities="my files/alike.csv")["ms+plg"]
    found = row.teacher.name, row.teacher.settings["file"], str(row.matching), row.ramp, row.weight
    assert found == ("classes", "my files/alike.csv", "plg", "constant", 7.5)


CANDIDATES = {  # on an embeddings file
    "ms": ["lr=0.0001", "lr=3e-05", "lr=0.0003"],
    "supcon": ["lr=0.0001", "lr=3e-05", "lr=0.0003"],
    "epshn": ["lr=0.0001", "lr=3e-05", "lr=0.0003"],
    "ms+psd": ["weight=100", "weight=10", "weight=1000"],
    "ms+obd-sd": ["weight=1", "weight=0.1", "weight=10"],
    "ms+flat": ["weight=1", "weight=0.1", "weight=10"],
    "ms+s2sd-msd": ["weight=50", "weight=5", "weight=500"],
    "supcon+soft-labels": ["weight=0.5", "weight=0.25", "weight=0.75"],
    "proxy-gml": ["loss.regulariser=0.3", "loss.regulariser=0.03", "loss.regulariser=3"],
    "mic": ["system.decorrelation=2500", "system.decorrelation=250", "system.decorrelation=25000"],
    "diva": ["system.decorrelation=1500", "system.decorrelation=150", "system.decorrelation=15000"],
    "dcml-mdw": ["lr=0.0001", "lr=3e-05", "lr=0.0003"],
    "pads": ["lr=0.0001", "lr=3e-05", "lr=0.0003"],
    "ms+plg": ["weight=7.5", "weight=0.75", "weight=75"],
}


def test_each_row_is_tuned_by_its_main_setting_its_own_value_first():
    rows = rows_on("x.npz", similarities="alike.csv")
    found = {name: arena.candidates_of(row) for name, row in rows.items()}
    assert {name: [*found[name]] for name in CANDIDATES} == CANDIDATES
    assert {len(values) for values in found.values()} == {3}
    for name, values in found.items():
        assert next(iter(values.values())) == rows[name]
        own = as_dict(rows[name])
        for value, options in values.items():
            setting, _, number = value.partition("=")
            assert arena.value_of(options, setting) == pytest.approx(float(number))
            assert {option for option, now in as_dict(options).items() if now != own[option]} <= {setting.partition(".")[0]}
            TARGETS.build(options.targets)
    assert str(found["proxy-gml"]["loss.regulariser=3"].loss) == "proxy-gml(regulariser=3.0)"


def test_a_share_stays_one():
    assert arena.share(0.9) == pytest.approx((0.45, 0.9, 0.95))


def test_nothing_times_ten_is_nothing():
    with pytest.raises(InputError, match=r"^weight=0.0 leaves tune nothing to choose from; give another, or leave tune out"):
        arena.candidates_of(preset("ms+psd", "x.npz", weight=0.0))


def test_the_budget_tells_of_a_training_before():
    plain, again = (arena.budget_of(preset(name, "x.npz")) for name in ("ms", "ms+bar"))
    assert (plain["trainings"], again["trainings"]) == ("1", "2")
    assert {**plain, "trainings": "2"} == again
    assert plain["epochs"] == "40"
