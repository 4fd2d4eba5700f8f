"""Cells of the tables from made-up records, by hand."""

import numpy as np
import pytest

from obdsd.experiments import reproduction_tables
from obdsd.experiments.reproduction import Reproduction
from study import contrasts, held_out, reading, tables
from study.records import RESULTS
from study.tests.made_up import cells_of, write, write_chosen, write_rows_of


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_a_page_holds_the_tables_of_the_records(page):
    """The page as it is committed, made again from results/."""
    text = page.read_text()
    assert "<!-- table " in text
    assert tables.filled(text) == text


@pytest.mark.parametrize("file", sorted((RESULTS / "reproduction").glob("*.md")), ids=lambda file: file.stem)
def test_a_reproduced_table_follows_from_its_runs(file):
    table = file.stem.removesuffix("-small-cub200")
    asked = Reproduction(table=table, scale="small", data="study/out/cub128.npz", seeds=5, out=file.parent)
    assert reproduction_tables.markdown(asked) == file.read_text()


def test_gains_are_over_the_seeds_that_both_rows_have():
    def row(**scores):
        return {int(seed[1:]): {"scores": {"map@r": score}} for seed, score in scores.items()}

    results = {"ms": row(s0=0.1, s1=0.2, s2=0.9), "psd": row(s0=0.3, s1=0.5, s7=0.0), "obd-sd": row(s8=0.1)}
    half = 12.706 * 5  # t of one degree of freedom × the standard error of 20 and 30
    assert reading.gain_of(results, "psd", "ms", "MAP@R") == f"+25.00 ({25 - half:+.2f} to {25 + half:+.2f})"
    assert reading.gain_of(results, "obd-sd", "ms", "MAP@R") == ""
    assert reading.gain_of(results, "margin", "ms", "MAP@R") == ""


@pytest.mark.parametrize(
    ("obd_sd", "mean_mix", "equal", "flat", "verdict"),
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
def test_a_gain_is_the_walks_only_if_it_is_above_every_control(obd_sd, mean_mix, equal, flat, verdict):
    """Gains over the plain loss, the same for each of five seeds but for a hundredth."""
    noise = np.random.default_rng(0).normal(scale=0.01, size=(5, 5))

    def row(number, gain):
        return {seed: {"scores": {"recall@1": 0.5 + each + noise[number, seed]}} for seed, each in enumerate(np.broadcast_to(gain, 5))}

    gains = {"ms": 0.0, "obd-sd": obd_sd, "mean-mix": mean_mix, reading.EQUAL: equal, "flat": flat}
    assert reading.verdict({name: row(number, gain) for number, (name, gain) in enumerate(gains.items())}) == verdict


def test_gains_with_wrong_labels_are_also_relative_to_the_plain_loss(places):
    write_rows_of("cub-linear-long/test", {"ms": (0.4, 0.4), "obd-sd": (0.4, 0.5), "margin": (0.1, 0.1)})
    write_rows_of("cub-linear-long/noise-0.2", {"ms": (0.2, 0.4), "obd-sd": (0.3, 0.6)})
    lines = cells_of(tables.noise_table("cub-linear-long"))
    assert [(line[0], line[1], line[3], line[4], line[-1]) for line in lines if line[1] != "ms"] == [
        ("0%", "obd-sd", "45.0", "+5.00", "+12.5%"),
        ("20%", "obd-sd", "45.0", "+15.00", "+50.0%"),
    ]
    write_rows_of("cub-linear-long/noise-0.4", {"ms": (0.2, 0.2), "obd-sd": (0.4, 0.4)})
    assert cells_of(contrasts.robust_table("")) == []  # with clean labels the gain is not told from 0
    write("cub-linear-long/test/obd-sd/seed-0", 0.5)
    lines = cells_of(contrasts.robust_table(""))
    assert ["linear head, 150 epochs", "obd-sd", "+10.0, +25%", "+15.0, +50%", "+20.0, +100%"] in lines
    assert reading.stages_of("glyphs-noise") == {0.0: "noise-0.0", 0.2: "test", 0.4: "noise-0.4"}


def test_many_questions_need_surer_answers():
    """Holm by hand: the smallest counts as often as there are questions, the next once less, and none less than the one before."""
    assert contrasts.holm([0.04, 0.01, 0.02, 0.9]) == pytest.approx([2 * 0.04, 4 * 0.01, 3 * 0.02, 0.9])
    assert contrasts.holm([0.01, 0.012, 0.9, 0.8]) == pytest.approx([0.04, 0.04, 1.0, 1.0])


def test_bold_answers_hold_among_all_questions(places):
    """Of eight seeds. OBD-SD is beyond doubt above the plain loss; that PSD is above it would be told if nothing else were asked."""
    noise = np.array([1, -1, 1, -1, 1, -1, 1, -1]) / 1000
    rows = {"ms": 0.3 + 0 * noise, "obd-sd": 0.4 + noise, "mean-mix": 0.4 + noise, "psd": 0.401 + 0 * noise}
    write_rows_of("cub-linear-free/test", rows)
    write_rows_of("cub-linear-long/test", {**rows, "ms": 0.4 + noise})
    write_rows_of("glyphs-noise/test", rows)  # wrong labels are another question
    below = "-0.10 (-0.19 to -0.01)"  # t = 2.365, s.e. 0.0378
    assert cells_of(contrasts.primary_table("")) == [
        ["linear head, all chosen", "30.0", "**+10.00 (+9.91 to +10.09)**", below, "+0.00 (+0.00 to +0.00)", "real, a control's too"],
        ["linear head, 150 epochs", "40.0", "+0.00 (+0.00 to +0.00)", below, "+0.00 (+0.00 to +0.00)", "not seen"],
    ]


def test_gains_on_held_out_classes_stand_beside_those_on_test_classes(places):
    write_rows_of("cub-linear-free/test", {"ms": (0.3, 0.5), "psd": (0.4, 0.6), "obd-sd": (0.2,)})
    settled = {"ms": 0.60, "psd": 0.65, "obd-sd": 0.605}
    write_chosen(places, "cub-linear-free", {row: {} for row in settled}, settled)
    assert held_out.carried_gains()["cub-linear-free"] == {"psd": pytest.approx((5, 10)), "obd-sd": pytest.approx((0.5, -10))}
    assert cells_of(held_out.carried_table("")) == [["psd", "+5.0, +10.0"], ["obd-sd", "+0.5, -10.0"]]
    assert cells_of(held_out.agreement_table("")) == [
        ["1 point or more, elsewhere", "1", "1", "+5.0", "+10.0"],
        ["less than 1 point, either way", "1", "0", "+0.5", "-10.0"],
    ]


def test_a_control_that_chose_the_settings_of_the_walk_stands_beside_it_too(places):
    """PSD chose what the sharper walk did and is taken from the test; the mix did not and is taken from where it was trained anew."""
    write_rows_of("cub-linear-free/test", {"psd": (0.2, 0.3), "obd-sd-sharp": (0.3, 0.4), "mean-mix": (0.9, 0.9)})
    settings = {"psd": {"weight": 1.0}, "obd-sd-sharp": {"weight": 1.0, "omega": 0.1}, "mean-mix": {"weight": 1.0, "omega": 0.7}}
    write_chosen(places, "cub-linear-free", settings)
    write_rows_of("cub-linear-free/equal/obd-sd-sharp", {"mean-mix": (0.1, 0.1)})
    assert list(reading.at_equal_settings("cub-linear-free", "obd-sd-sharp")) == ["obd-sd-sharp", "psd", "mean-mix"]
    assert [line[2:4] for line in cells_of(contrasts.equal_table("obd-sd-sharp"))] == [
        ["+10.00 (+10.00 to +10.00)", "+25.00 (-38.53 to +88.53)"],
        ["+1.00 (+1.00 to +1.00)", "+2.50 (-3.85 to +8.85)"],
    ]
