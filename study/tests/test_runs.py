"""Real trainings, small ones: they become records, and what is measured of them is right."""

import json

import numpy as np
import pytest
import torch

from obdsd.data import open_data
from obdsd.experiments.statistics import t_interval
from obdsd.models import Embedder
from study import reading, records, tables, testing, walk
from study.tests.made_up import cells_of, small, write_rows_of
from study.walk import explained, share_of_the_mean_row


def test_differences_are_paired_by_seed(places, rows):
    for row, weight in (("ms", 0.0), ("psd", 500.0)):
        records.run_all({f"r/test/{row}/seed-{seed}": small(rows, seed=seed, weight=weight) for seed in (0, 1, 2)}, jobs=1)
    results = reading.results_of("r")
    assert {row: list(seeds) for row, seeds in results.items()} == {"ms": [0, 1, 2], "psd": [0, 1, 2]}
    gains = [reading.recall(results["psd"][seed]) - reading.recall(results["ms"][seed]) for seed in (0, 1, 2)]
    assert reading.over_seeds(results["psd"], results["ms"]) == t_interval(np.array(gains))
    (plain, *_), (psd, *cells) = cells_of(tables.scores_table("r"))
    assert (plain, psd) == ("ms", "psd")
    assert f"{100 * np.mean(gains):+.2f}" in cells


def test_times_are_measured_for_rows_that_were_tested(places, rows, monkeypatch):
    options = {"ms": small(rows), "psd": small(rows, weight=3.0)}
    monkeypatch.setattr(testing, "chosen_options", lambda regime, row: options[row])
    monkeypatch.setattr(testing, "TURNS", 2)
    write_rows_of("cub-linear-free/test", {"ms": (0.3,), "psd": (0.4,)})
    testing.times("cub-linear-free")
    times = reading.times_of("cub-linear-free")
    assert times.keys() == {"psd"}
    assert times["psd"] > 0
    assert reading.times_of("glyphs") == {}


def test_an_untrained_head_is_the_one_that_the_seed_draws(places, rows, monkeypatch):
    monkeypatch.setattr(testing, "data_of", lambda _: rows)
    monkeypatch.setattr(testing, "seeds_of", lambda _: range(2))
    made = testing.options_of
    monkeypatch.setattr(testing, "options_of", lambda *args: made(*args).replace(batch_size=8, device="cpu"))
    testing.untrained("cub-linear-free")
    test = open_data(rows)["test"]
    heads = reading.untrained_of("cub-linear-free")["*untrained head*"]
    for seed in (0, 1):
        with torch.no_grad():
            Z = Embedder("features", features=20, head="linear", seed=seed).eval()(torch.stack([test[i][0] for i in range(len(test))]))
        right = test.labels[(Z @ Z.mT).fill_diagonal_(-2).argmax(dim=1)] == test.labels
        assert heads[seed]["scores"]["recall@1"] == pytest.approx(right.mean())
        classes = heads[seed]["per_class"]
        assert np.average(classes["recall@1"], weights=classes["queries"]) == pytest.approx(right.mean())
    assert heads[0] != heads[1]
    assert reading.untrained_of("cub-linear-long") == {}


def test_batches_can_be_drawn_with_replacement(places, rows, monkeypatch):
    monkeypatch.setattr(testing, "chosen_options", lambda regime, row: small(rows))
    monkeypatch.setattr(testing, "REPLACED", ("psd",))
    testing.replacement("cub-linear-free", seeds=2)
    runs = reading.results_of("cub-linear-free", "replacement")["psd"]
    assert [record["options"]["replacement"] for record in runs.values()] == [True, True]


def test_on_a_complete_graph_the_walk_is_a_flatter_teacher_and_the_mean_row():
    noise = torch.randn(60, 16, generator=torch.Generator().manual_seed(0)).double()
    cone = torch.nn.functional.normalize(noise + 6 * torch.eye(16)[0], dim=1)
    flatter, with_mean_row = explained(cone, 0.7)
    assert flatter < 0.9
    assert with_mean_row > 0.999
    assert explained(cone, 0.0) == pytest.approx((1, 1))
    sides = torch.nn.functional.normalize(noise + 6 * torch.eye(16)[0] * (-1) ** torch.arange(60)[:, None], dim=1)
    assert explained(sides, 0.7)[1] < 0.9  # two clusters that no walk joins: here the graph matters


def test_the_mean_row_explains_nothing_where_nobody_is_nearer_to_everybody():
    angles = 2 * np.pi * torch.arange(24).double() / 24
    assert share_of_the_mean_row(torch.stack([angles.cos(), angles.sin()], dim=1)) == pytest.approx(0, abs=1e-12)
    towards = torch.linspace(0.5, 0.9, 200).double()  # D_ij = c_i·c_j: how near an item is depends on c_j alone
    Z = torch.cat([towards[:, None], torch.diag((1 - towards**2).sqrt())], dim=1)
    assert share_of_the_mean_row(Z) == pytest.approx(1 - float(towards.var() / towards.square().mean()), abs=0.01)


def test_the_mean_row_is_measured_on_trained_models(places, rows, monkeypatch):
    monkeypatch.setattr(walk, "HEADS", {"linear head": ("cub-linear-long", ("ms", "psd"))})
    monkeypatch.setattr(walk, "chosen_options", lambda regime, row: small(rows, {"ms": "ms", "psd": "ms+psd"}[row], lr=0.01))
    walk.write_shares(jobs=1)
    shares = json.loads((places / "results" / "walk.json").read_text())
    assert list(shares) == ["features", "linear head, untrained", "linear head, ms, 4 epochs", "linear head, psd, 4 epochs"]
    assert len({tuple(each) for each in shares.values()}) == 4
    assert all(len(each) == 1 + 2 * len(walk.OMEGAS) for each in shares.values())
    assert not (places / "scratch" / "walk").exists()
    assert [who for who, *_ in cells_of(tables.walk_table(""))] == [*shares]
