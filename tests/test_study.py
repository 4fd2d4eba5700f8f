"""The study's bookkeeping: nothing is run twice, nothing is taken for what it is not, the search keeps the best of each turn."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from obdsd.data import open_data
from obdsd.experiments.statistics import t_interval
from obdsd.models import Embedder
from obdsd.presets import preset
from obdsd.training.display import Display
from obdsd.training.runs import RunFolder
from study import __main__ as study
from study import contrasts, plan, reading, records, tables, trials, walk
from study.beginnings import beginning_as
from study.walk import explained, share_of_the_mean_row
from tests.made_up import write_rows


@pytest.fixture
def places(tmp_path, monkeypatch):
    for module in (records, reading, study, tables, contrasts, walk):
        for name in ("RESULTS", "SCRATCH"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, tmp_path / name.lower())
    return tmp_path


@pytest.fixture
def rows(tmp_path):
    return write_rows(tmp_path / "rows.npz", 12, 8, 20)


def small(rows, **changes):
    return preset("ms+psd", rows, epochs=4, batch_size=8, dim=4, evaluate_every=0, reference=False, device="cpu", **changes)


def test_a_run_becomes_a_record_and_is_not_repeated(places, rows, monkeypatch):
    records.run_all({"a/seed-0": small(rows)}, jobs=1)
    (name, record), *others = records.records("a").items()
    assert (name, others) == ("seed-0", [])
    assert record["options"]["weight"] == small(rows).weight
    assert "data" not in record["options"]
    assert [point["epoch"] for point in record["curve"]] == [0, 1, 2, 3]
    queries = np.array(record["per_class"]["queries"])
    assert np.isclose((queries * record["per_class"]["recall"]["1"]).sum() / queries.sum(), record["scores"]["recall"]["1"], atol=1e-5)
    assert not (places / "scratch" / "a" / "seed-0").exists()
    monkeypatch.setattr(records, "carry_out", lambda plan, *_: pytest.fail("again") if plan else None)
    records.run_all({"a/seed-0": small(rows)}, jobs=1)


def test_a_record_of_other_options_is_not_taken_for_this_run(places, rows):
    records.run_all({"a": small(rows)}, jobs=1)
    with pytest.raises(SystemExit, match=r"a\.json: has other options than planned \(omega, seed\); remove it, or name the run otherwise"):
        records.run_all({"a": small(rows, seed=1, omega=0.5)}, jobs=1)


def test_a_run_that_finished_without_its_record_is_not_lost(places, rows, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(records, "keep", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            records.run_all({"a": small(rows)}, jobs=1)
    records.run_all({"a": small(rows)}, jobs=1)
    assert list(records.records("")) == ["a"]


def write(places, name, recall):
    file = places / "results" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    per_class = {"queries": [10], "recall": {"1": [recall]}}
    scores = {"recall": {"1": recall}, "map_at_r": recall / 10}
    file.write_text(json.dumps({"scores": scores, "per_class": per_class, "train": {"spectral_decay": recall / 2}}))


def cells_of(table):
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()[2:]]


def test_the_search_keeps_the_best_of_each_turn(places, monkeypatch):
    """Held-out Recall@1 made up as a function of the settings: the search must climb it coordinate by coordinate."""
    monkeypatch.setattr(study, "data_of", lambda _: "rows.npz")
    monkeypatch.setattr(study, "recorded", lambda name, _: (places / "results" / f"{name}.json").exists())

    def pretend(due, jobs):
        for name, options in due.items():
            fold = 0.1 if options.val_fold == "1/3" else 0.0
            height = 1 - abs(np.log10(options.weight) - 1) / 10 - abs(options.omega - 0.1) - options.lr * 100 - fold
            write(places, name, height)

    monkeypatch.setattr(study, "run_all", pretend)
    study.search("cub-linear-free", ["obd-sd", "psd"], jobs=1)
    study.settle("cub-linear-free")
    chosen = json.loads((places / "results" / "cub-linear-free" / "chosen.json").read_text())
    assert list(chosen) == ["psd", "obd-sd"]  # whose search is finished
    assert chosen["obd-sd"]["settings"] == {"epochs": 40, "lr": 1e-4, "weight": 10.0, "omega": 0.1, "temperature": 1.0}
    assert "omega" not in chosen["psd"]["settings"]
    assert chosen["obd-sd"]["validation"] == pytest.approx(1 - 1e-2 - 0.05)
    assert study.chosen_options("cub-linear-free", "obd-sd").weight == 10.0
    for row in chosen:
        points = list((places / "results" / "cub-linear-free" / "search" / row).iterdir())
        assert plan.tried(plan.REGIMES["cub-linear-free"], row) == len(points)
    before = json.loads((places / "results" / "cub-linear-free" / "chosen.json").read_text())
    next((places / "results" / "cub-linear-free" / "search" / "psd").rglob("fold-1.json")).unlink()
    study.settle("cub-linear-free")  # an unfinished row keeps what was settled
    assert json.loads((places / "results" / "cub-linear-free" / "chosen.json").read_text()) == before
    with pytest.raises(SystemExit, match="margin has no settings"):
        study.chosen_options("cub-linear-free", "margin")


def test_a_setting_far_behind_on_the_first_fold_is_not_asked_again(places, monkeypatch):
    """λ = 10,000 is four points behind on the first fold and would have won on both; λ = 10, two behind, does win."""
    monkeypatch.setattr(study, "data_of", lambda _: "rows.npz")
    monkeypatch.setattr(study, "recorded", lambda name, _: (places / "results" / f"{name}.json").exists())
    heights = {10.0: (0.58, 0.63), 1000.0: (0.60, 0.60), 10000.0: (0.56, 0.90)}

    def pretend(due, jobs):
        for name, options in due.items():
            write(places, name, heights.get(options.weight, (0.5, 0.5))[options.val_fold == "1/3"])

    monkeypatch.setattr(study, "run_all", pretend)
    study.search("cub-linear-long", ["psd"], jobs=1)
    assert study.descend("cub-linear-long", "psd") == ({"epochs": 150, "lr": 1e-4, "weight": 10.0}, {})
    asked = [
        path.parent.name.rpartition("=")[2] for path in (places / "results" / "cub-linear-long" / "search" / "psd").rglob("fold-1.json")
    ]
    assert sorted(asked) == ["10", "1000"]


def test_every_row_differs_from_every_other():
    made = [replace(plan.options_of(plan.REGIMES["cub-linear-free"], row, "rows.npz", {}), preset="") for row in plan.ROWS]
    assert len({str(options) for options in made}) == len(plan.ROWS)


def test_differences_are_paired_by_seed(places, rows):
    options = {
        f"r/test/{row}/seed-{seed}": small(rows, seed=seed, weight=weight)
        for row, weight in (("ms", 0.0), ("psd", 500.0))
        for seed in (0, 1, 2)
    }
    records.run_all(options, jobs=1)
    found = reading.results_of("r")
    assert {row: list(seeds) for row, seeds in found.items()} == {"ms": [0, 1, 2], "psd": [0, 1, 2]}
    gains = [found["psd"][seed]["scores"]["recall"]["1"] - found["ms"][seed]["scores"]["recall"]["1"] for seed in (0, 1, 2)]
    assert reading.differences(found["psd"], found["ms"])[0] == t_interval(np.array(gains))
    table = tables.scores_table("r")
    assert f"{100 * np.mean(gains):+.2f}" in table
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:]] == ["ms", "psd"]


def test_gains_are_over_the_seeds_that_both_rows_have():
    def row(**scores):
        return {int(seed[1:]): {"scores": {"map_at_r": score}} for seed, score in scores.items()}

    results = {"ms": row(s0=0.1, s1=0.2, s2=0.9), "psd": row(s0=0.3, s1=0.5, s7=0.0), "obd-sd": row(s8=0.1)}
    half = 12.706 * 5  # t of one degree of freedom × the standard error of 20 and 30
    assert reading.gain_of(results, "psd", "ms", "MAP@R") == f"+25.00 ({25 - half:+.2f} to {25 + half:+.2f})"
    assert reading.gain_of(results, "obd-sd", "ms", "MAP@R") == ""
    assert reading.gain_of(results, "margin", "ms", "MAP@R") == ""


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_the_page_holds_what_the_records_say(page):
    """The page as it is committed, made anew from results/."""
    text = page.read_text()
    assert "<!-- table " in text
    assert tables.filled(text) == text


def test_times_are_measured_for_rows_that_were_tested(places, rows, monkeypatch):
    options = {"ms": small(rows), "psd": small(rows, weight=3.0)}
    monkeypatch.setattr(study, "chosen_options", lambda regime, row: options[row])
    monkeypatch.setattr(study, "TURNS", 2)
    for row in options:
        (places / "results" / "cub-linear-free" / "test" / row).mkdir(parents=True)
    study.times("cub-linear-free")
    found = reading.times_of("cub-linear-free")
    assert found.keys() == {"psd"}
    assert found["psd"] > 0
    assert reading.times_of("glyphs") == {}


@pytest.mark.parametrize(
    ("obd_sd", "mean_mix", "equal", "flat", "said"),
    [
        (0.0, 0.0, 0.0, 0.0, "not seen"),
        (-0.1, 0.0, 0.0, 0.0, "a loss"),
        (0.1, 0.1, 0.0, 0.0, "real, a control's too"),
        (0.1, 0.2, 0.0, 0.0, "real, a control's too"),
        (0.1, 0.0, 0.1, 0.0, "real, a control's too"),
        (0.1, 0.0, 0.0, 0.1, "real, a control's too"),
        (0.1, 0.0, 0.0, 0.0, "real, and the walk's"),
        (0.1, [0.3, -0.3, 0.3, -0.3, 0.3], 0.0, 0.0, "real, not told from a control's"),
    ],
)
def test_a_gain_is_the_walks_only_if_it_is_above_every_control(obd_sd, mean_mix, equal, flat, said):
    """Gains over the plain loss, the same for each of five seeds but for a hundredth."""
    noise = np.random.default_rng(0).normal(scale=0.01, size=(5, 5))

    def row(number, gain):
        return {seed: record(0.5 + each + noise[number, seed]) for seed, each in enumerate(np.broadcast_to(gain, 5))}

    def record(recall):
        return {"scores": {"recall": {"1": recall}}, "per_class": {"queries": [10, 10], "recall": {"1": [recall, recall]}}}

    gains = {"ms": 0.0, "obd-sd": obd_sd, "mean-mix": mean_mix, reading.EQUAL: equal, "flat": flat}
    assert reading.verdict({name: row(number, gain) for number, (name, gain) in enumerate(gains.items())}) == said


def test_an_untrained_head_is_the_one_that_the_seed_draws(places, rows, monkeypatch):
    monkeypatch.setattr(study, "data_of", lambda _: rows)
    monkeypatch.setattr(study, "seeds_of", lambda _: range(2))
    made = study.options_of
    monkeypatch.setattr(study, "options_of", lambda *args: replace(made(*args), batch_size=8, device="cpu"))
    study.untrained("cub-linear-free")
    test = open_data(rows)["test"]
    table = reading.untrained_of("cub-linear-free")["*untrained head*"]
    for seed in (0, 1):
        with torch.no_grad():
            Z = Embedder("features", features=20, head="linear", seed=seed).eval()(torch.stack([test[i][0] for i in range(len(test))]))
        nearest = (Z @ Z.mT).fill_diagonal_(-2).argmax(dim=1)
        right = test.labels[nearest] == test.labels
        assert table[seed]["scores"]["recall"]["1"] == pytest.approx(right.mean())
        assert np.average(table[seed]["per_class"]["recall"]["1"], weights=table[seed]["per_class"]["queries"]) == pytest.approx(
            right.mean()
        )
    assert table[0] != table[1]
    assert reading.untrained_of("cub-linear-long") == {}


def test_controls_get_the_settings_of_the_walk_where_they_chose_others(monkeypatch, capsys):
    point, walks = {"weight": 7.0, "omega": 0.2}, list(plan.WALKS)
    chosen = {"obd-sd": point, "mean-mix": {"weight": 5.0, "omega": 0.9}, "anchor+walk": point, "anchor": {"weight": 7.0}}
    planned = {}
    monkeypatch.setattr(study, "data_of", lambda _: "rows.npz")
    monkeypatch.setattr(study, "settled", lambda regime: {row: {"settings": point} for row, point in chosen.items()})
    monkeypatch.setattr(study, "run_all", lambda plan, jobs: planned.update(plan))
    study.equal("cub-linear-free", walks, seeds=2, jobs=1)
    names = ("obd-sd/mean-mix", "anchor+walk/anchor+mean-mix")
    assert list(planned) == [f"cub-linear-free/equal/{name}/seed-{seed}" for name in names for seed in (0, 1)]
    assert {(run.targets, run.weight, run.omega) for run in planned.values()} == {("mean-mix", 7.0, 0.2)}
    assert [run.teacher for run in planned.values()] == 2 * ["previous-epoch"] + 2 * ["features"]
    assert "anchor has the settings of anchor+walk already" in capsys.readouterr().out  # it knows no ω
    planned.clear()
    study.equal("cub-linear-free", ["obd-sd"], seeds=2, jobs=1)
    assert {name.split("/")[2] for name in planned} == {"obd-sd"}
    planned.clear()
    chosen |= {"mean-mix": point, "anchor+mean-mix": point}
    study.equal("cub-linear-free", walks, seeds=2, jobs=1)
    assert not planned
    del chosen["anchor+walk"]  # a regime that has no such row
    study.equal("cub-linear-free", walks, seeds=2, jobs=1)
    assert not planned


def test_the_first_trials_are_repeated_as_they_were(monkeypatch):
    planned = {}
    monkeypatch.setattr(trials, "run_all", lambda plan, jobs: planned.update(plan))
    trials.run_trials(lambda name: name, jobs=1)
    of = {name: (run.data, run.epochs, run.lr, run.head, run.weight, run.omega, run.seed) for name, run in planned.items()}
    assert of["trials/cub/psd,weight=1000/seed-4"] == ("cub128.npz", 40, 1e-4, "two-layer", 1000.0, 0.3, 4)
    assert of["trials/letters/mean-mix,weight=1000/seed-0"] == ("letters64.npz", 60, 3e-4, "two-layer", 1000.0, 0.3, 0)
    assert planned["trials/cub/ms,weight=0/seed-0"].teacher == "none"
    assert len(planned) == len({str(replace(run, preset="")) for run in planned.values()}) == 13 * 5


def test_a_trial_stands_beside_what_two_seeds_had_suggested(places, monkeypatch):
    trial = trials.Trial(data="rows.npz", common={}, first={("ms", 0.0): 30.0, ("psd", 10.0): 40.0})
    monkeypatch.setattr(tables, "TRIALS", {"made-up": trial})
    for row, recalls in (("ms,weight=0", (0.20, 0.30)), ("psd,weight=10", (0.32, 0.38))):
        for seed, recall in enumerate(recalls):
            write(places, f"trials/made-up/{row}/seed-{seed}", recall)
    plain, psd = (line.strip("| ").split(" | ") for line in tables.trials_table("made-up").splitlines()[2:])
    assert [cell.strip() for cell in psd] == ["psd", "10", "40.0", "35.0", "+10.00", "-15.41 to +35.41", "0.175"]  # t = 12.706, s.e. 2
    assert plain[0] == "ms"
    assert "25.0" in plain


def test_gains_with_wrong_labels_are_also_relative_to_the_plain_loss(places):
    for stage, rows in {
        "test": {"ms": (0.4, 0.4), "obd-sd": (0.4, 0.5), "margin": (0.1, 0.1)},
        "noise-0.2": {"ms": (0.2, 0.4), "obd-sd": (0.3, 0.6)},
    }.items():
        for row, recalls in rows.items():
            for seed, recall in enumerate(recalls):
                write(places, f"cub-linear-long/{stage}/{row}/seed-{seed}", recall)
    lines = cells_of(tables.noise_table("cub-linear-long"))
    assert [(line[0], line[1], line[3], line[4], line[-1]) for line in lines if line[1] != "ms"] == [
        ("0%", "obd-sd", "45.0", "+5.00", "+12.5%"),
        ("20%", "obd-sd", "45.0", "+15.00", "+50.0%"),
    ]
    for row, recalls in {"ms": (0.2, 0.2), "obd-sd": (0.4, 0.4)}.items():
        for seed, recall in enumerate(recalls):
            write(places, f"cub-linear-long/noise-0.4/{row}/seed-{seed}", recall)
    assert len(contrasts.robust_table("").splitlines()) == 2  # with clean labels the gain is not told from 0
    write(places, "cub-linear-long/test/obd-sd/seed-0", 0.5)
    lines = cells_of(contrasts.robust_table(""))
    assert ["linear head, 150 epochs", "obd-sd", "+10.0, +25%", "+15.0, +50%", "+20.0, +100%"] in lines
    assert reading.stages_of("glyphs-noise") == {0.0: "noise-0.0", 0.2: "test", 0.4: "noise-0.4"}


def test_on_a_complete_graph_the_walk_is_a_flatter_teacher_and_the_mean_row():
    noise = torch.randn(60, 16, generator=torch.Generator().manual_seed(0)).double()
    cone = torch.nn.functional.normalize(noise + 6 * torch.eye(16)[0], dim=1)
    flatter, with_mean_row = explained(cone, 0.7)
    assert flatter < 0.9
    assert with_mean_row > 0.999
    assert explained(cone, 0.0) == pytest.approx((1, 1))
    sides = torch.nn.functional.normalize(noise + 6 * torch.eye(16)[0] * (-1) ** torch.arange(60)[:, None], dim=1)
    assert explained(sides, 0.7)[1] < 0.9  # two clusters that no walk joins: here the graph has something to say


def test_the_mean_row_has_nothing_where_nobody_is_nearer_to_everybody():
    angles = 2 * np.pi * torch.arange(24).double() / 24
    assert share_of_the_mean_row(torch.stack([angles.cos(), angles.sin()], dim=1)) == pytest.approx(0, abs=1e-12)
    towards = torch.linspace(0.5, 0.9, 200).double()  # D_ij = c_i·c_j: what an item is near to is a matter of c_j alone
    Z = torch.cat([towards[:, None], torch.diag((1 - towards**2).sqrt())], dim=1)
    assert share_of_the_mean_row(Z) == pytest.approx(1 - float(towards.var() / towards.square().mean()), abs=0.01)


def test_the_mean_row_is_read_off_models_that_were_trained(places, rows, monkeypatch):
    monkeypatch.setattr(walk, "HEADS", {"linear head": ("cub-linear-long", ("ms", "psd"))})
    weights = {"ms": {"teacher": "none", "weight": 0.0}, "psd": {}}
    walk.write_shares(lambda regime, row: small(rows, lr=0.01, **weights[row]), jobs=1)
    found = json.loads((places / "results" / "walk.json").read_text())
    assert list(found) == ["features", "linear head, untrained", "linear head, ms, 4 epochs", "linear head, psd, 4 epochs"]
    assert len({tuple(shares) for shares in found.values()}) == 4
    assert all(len(shares) == 1 + 2 * len(walk.OMEGAS) for shares in found.values())
    assert not (places / "scratch" / "walk").exists()
    assert "| features " in tables.walk_table("")


def test_the_record_of_the_walk_is_of_the_models_that_the_script_looks_at():
    found = [who.split(", ") for who in json.loads((records.RESULTS / "walk.json").read_text())]
    wanted = [[who, name] for who, (_, rows) in walk.HEADS.items() for name in ("untrained", *rows)]
    assert [parts[:2] for parts in found] == [["features"], *wanted]


def test_heads_begin_with_a_part_of_what_the_projection_has(rows, tmp_path):
    def head(name, **changes):
        options = small(rows, teacher="none", weight=0.0, **changes)
        training = beginning_as(name)(options, open_data(rows), RunFolder(tmp_path / "run"))
        training.project_head(Display(0, 0))
        assert not training.embedder.head.bias.any()
        return training.embedder.head.weight.detach().double()

    drawn = Embedder("features", features=20, dim=4, head="linear", seed=0).head.weight.detach().double()
    P, unit, lengths = head("projection"), torch.eye(4).double(), torch.linalg.vector_norm(drawn, dim=1)
    close = {"atol": 1e-6, "rtol": 1e-5}
    torch.testing.assert_close(P @ P.T, unit, **close)
    torch.testing.assert_close(head("random"), drawn)
    torch.testing.assert_close(head("random, a tenth as long"), drawn / 10)
    torch.testing.assert_close(head("random, as long as the projection"), drawn / lengths[:, None], **close)
    torch.testing.assert_close(head("projection, as long as random"), P * lengths[:, None], **close)
    orthonormal = head("random, orthonormal")
    torch.testing.assert_close(orthonormal @ orthonormal.T, unit, **close)
    torch.testing.assert_close(drawn @ orthonormal.T @ orthonormal, drawn, **close)  # the same directions
    inside = head("random inside the main directions")
    torch.testing.assert_close(inside @ P.T @ P, inside, **close)
    torch.testing.assert_close(torch.linalg.vector_norm(inside, dim=1), lengths, **close)
    turned = head("random inside the main directions, orthonormal")
    torch.testing.assert_close(turned.T @ turned, P.T @ P, **close)  # the projection's own cosines
    assert not torch.allclose(turned, P)


def test_what_is_asked_often_must_be_surer():
    """Holm by hand: the smallest counts as often as there are questions, the next once less, and none less than the one before."""
    assert contrasts.holm([0.04, 0.01, 0.02, 0.9]) == pytest.approx([2 * 0.04, 4 * 0.01, 3 * 0.02, 0.9])
    assert contrasts.holm([0.01, 0.012, 0.9, 0.8]) == pytest.approx([0.04, 0.04, 1.0, 1.0])


def write_rows_of(places, regime, recalls):
    for row, found in recalls.items():
        for seed, recall in enumerate(found):
            write(places, f"{regime}/test/{row}/seed-{seed}", recall)


def test_bold_is_what_holds_among_all_questions(places):
    """Of eight seeds. OBD-SD is beyond doubt above the plain loss; that PSD is above it would be told if nothing else were asked."""
    noise = np.array([1, -1, 1, -1, 1, -1, 1, -1]) / 1000
    rows = {"ms": 0.3 + 0 * noise, "obd-sd": 0.4 + noise, "mean-mix": 0.4 + noise, "psd": 0.401 + 0 * noise}
    write_rows_of(places, "cub-linear-free", rows)
    write_rows_of(places, "cub-linear-long", {**rows, "ms": 0.4 + noise})
    write_rows_of(places, "glyphs-noise", rows)  # wrong labels are another question
    table = cells_of(contrasts.primary_table(""))
    below = "-0.10 (-0.19 to -0.01)"  # t = 2.365, s.e. 0.0378
    assert table == [
        ["linear head, all chosen", "30.0", "**+10.00 (+9.91 to +10.09)**", below, "+0.00 (+0.00 to +0.00)", "real, a control's too"],
        ["linear head, 150 epochs", "40.0", "+0.00 (+0.00 to +0.00)", below, "+0.00 (+0.00 to +0.00)", "not seen"],
    ]


def test_what_held_out_classes_had_said_stands_beside_what_came(places):
    write_rows_of(places, "cub-linear-free", {"ms": (0.3, 0.5), "psd": (0.4, 0.6), "obd-sd": (0.2,)})
    settled = {"ms": 0.60, "psd": 0.65, "obd-sd": 0.605}
    chosen = {row: {"validation": recall, "settings": {}} for row, recall in settled.items()}
    (places / "results" / "cub-linear-free" / "chosen.json").write_text(json.dumps(chosen))
    assert contrasts.carried_gains("cub-linear-free") == {"psd": pytest.approx((5, 10)), "obd-sd": pytest.approx((0.5, -10))}
    lines = cells_of(contrasts.carried_table(""))
    assert lines == [["psd", "+5.0, +10.0"], ["obd-sd", "+0.5, -10.0"]]
    lines = cells_of(contrasts.agreement_table(""))
    assert lines == [
        ["1 point or more, elsewhere", "1", "1", "+5.0", "+10.0"],
        ["less than 1 point, either way", "1", "0", "+0.5", "-10.0"],
    ]


def test_batches_with_replacement_stand_beside_those_without(places, rows, monkeypatch):
    monkeypatch.setattr(study, "chosen_options", lambda regime, row: small(rows))
    monkeypatch.setattr(study, "REPLACED", ("psd",))
    study.replacement("cub-linear-free", seeds=2, jobs=1)
    found = reading.results_of("cub-linear-free", "replacement")
    assert [record["options"]["replacement"] for record in found["psd"].values()] == [True, True]
    write_rows_of(places, "cub-linear-long", {"psd": (0.3, 0.4, 0.9)})
    write(places, "cub-linear-long/replacement/ms/seed-0", 0.30)
    write(places, "cub-linear-long/replacement/ms/seed-1", 0.42)
    for seed, recall in enumerate((0.31, 0.43)):
        write(places, f"cub-linear-long/replacement/psd/seed-{seed}", recall)
    lines = cells_of(contrasts.replacement_table(""))
    assert lines[-2:] == [  # of +1 and +3: t = 12.706, s.e. 1
        ["linear head, 150 epochs", "R@1", "", "+2.00 (-10.71 to +14.71)", "", "+1.00 (+1.00 to +1.00)"],
        ["linear head, 150 epochs", "MAP@R", "", "+0.20 (-1.07 to +1.47)", "", "+0.10 (+0.10 to +0.10)"],
    ]


def test_a_control_that_chose_the_settings_of_the_walk_stands_beside_it_too(places):
    """PSD chose what the sharper walk did and is taken from the test; the mix did not and is taken from where it was trained anew."""
    write_rows_of(places, "cub-linear-free", {"psd": (0.2, 0.3), "obd-sd-sharp": (0.3, 0.4), "mean-mix": (0.9, 0.9)})
    settings = {"psd": {"weight": 1.0}, "obd-sd-sharp": {"weight": 1.0, "omega": 0.1}, "mean-mix": {"weight": 1.0, "omega": 0.7}}
    chosen = {row: {"validation": 0.5, "settings": point} for row, point in settings.items()}
    (places / "results" / "cub-linear-free" / "chosen.json").write_text(json.dumps(chosen))
    for seed in (0, 1):
        write(places, f"cub-linear-free/equal/obd-sd-sharp/mean-mix/seed-{seed}", 0.1)
    found = reading.at_equal_settings("cub-linear-free", "obd-sd-sharp")
    assert list(found) == ["obd-sd-sharp", "psd", "mean-mix"]
    assert [line[2:] for line in cells_of(contrasts.equal_table("obd-sd-sharp"))] == [
        ["+10.00 (+10.00 to +10.00)", "+25.00 (-38.53 to +88.53)"],
        ["+1.00 (+1.00 to +1.00)", "+2.50 (-3.85 to +8.85)"],
    ]


def test_wrong_labels_are_for_the_rows_that_were_asked_for(monkeypatch, capsys):
    asked = []
    monkeypatch.setitem(study.OF_A_REGIME, "noise", lambda regime, rows, given: asked.append((regime, rows)))
    for given in ([], ["--rows", "balanced"]):
        monkeypatch.setattr("sys.argv", ["study", "noise", "cub-linear-long", *given])
        study.main()
    assert asked == [("cub-linear-long", list(plan.NOISE_ROWS)), ("cub-linear-long", ["balanced"])]
    monkeypatch.setattr("sys.argv", ["study", "noise", "cub-linear-long", "--rows", "psdd"])
    with pytest.raises(SystemExit):
        study.main()
    assert "no row called psdd; there are ms, psd" in capsys.readouterr().err


def test_what_obd_sd_adds_to_the_margin_loss(places):
    write_rows_of(places, "cub-linear-free", {"ms": (0.9, 0.9), "margin": (0.3, 0.4), "margin+obd-sd": (0.31, 0.43)})
    write_rows_of(places, "cub-linear-long", {"ms": (0.9, 0.9)})
    assert cells_of(contrasts.margin_table("")) == [["linear head, all chosen", "+2.00 (-10.71 to +14.71)", "+0.20 (-1.07 to +1.47)"]]
