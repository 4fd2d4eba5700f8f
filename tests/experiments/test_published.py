"""The paper's numbers: counted, kept, and held against each other where the paper prints one twice."""

import hashlib
from importlib.resources import files

import pytest

from obdsd import InputError
from obdsd.experiments.published import Published, published


def value(table: str, row: str, data: str, metric: str) -> float:
    return published(table)[row, data, metric].value


def values(table: str, row: str) -> dict[tuple[str, str], float]:
    return {key[1:]: number.value for key, number in published(table).items() if key[0] == row}


def test_no_number_has_changed_since_all_were_compared_with_their_papers():
    content = files("obdsd.experiments").joinpath("published.csv").read_text("utf-8")
    assert hashlib.sha256(content.encode()).hexdigest() == "4698203ca5958677237c100010b9bece921f12306996ea5e13546361909f70c2"


def test_a_number_knows_where_it_was_printed():
    sota = published("sota")
    printed = ("sota", "proxy-anchor", "ProxyAnchor (PA)", "CVPR'20", "IBN/512+D", "sop", "recall@10", 90.8)
    assert sota["proxy-anchor", "sop", "recall@10"] == Published(*printed)
    assert len(values("sota", "proxy-anchor")) == 6  # no NMI
    ours = sota["r50-128+d", "cub200", "nmi"]
    assert (ours.label, ours.venue, ours.architecture) == ("MS + OBD-SD (Ours)", "", "R50/128+D")
    assert published("strong-baselines")["margin", "sop", "nmi"].label == "Margin (β=1.2)"
    assert {number.architecture for table in ("elements", "noise", "omega") for number in published(table).values()} == {"R50/128"}


def test_numbers_that_the_paper_leaves_out_are_those_of_the_systems_own_publications():
    assert [value("sota", "rcl", data, "recall@1") for data in ("cub200", "cars196", "sop")] == [72.1, 89.6, 79.8]
    assert [value("sota", f"{loss}+memvir", "cars196", "recall@1") for loss in ("norm-softmax", "proxynca")] == [86.11, 86.19]
    assert value("sota", "pa+memvir", "cars196", "recall@1") == 86.7


ARROWS = {  # as printed beside the numbers of Table 1
    "margin": [2.63, 1.62, 1.47, 0.68, 0.61, 0.19],
    "r-margin": [2.00, 0.93, 2.10, 1.67, 0.30, 0.14],
    "ms": [4.66, 2.48, 2.54, 1.55, 1.08, 0.21],
}


@pytest.mark.parametrize("loss", ARROWS)
def test_the_printed_differences_are_the_differences(loss):
    before, after = values("strong-baselines", loss), values("strong-baselines", f"{loss}+obd-sd")
    assert [after[key] - before[key] for key in before] == pytest.approx(ARROWS[loss], abs=1e-9)


OFF = {  # where the printed improvement is not that of the printed values: what it should be
    ("0.1", "cub200", "recall@1"): 10.76,  # printed 10.75
    ("0.4", "cub200", "nmi"): 12.64,  # printed 13.07
}


@pytest.mark.parametrize("ratio", ["0.1", "0.2", "0.3", "0.4"])
@pytest.mark.parametrize("data", ["cub200", "cars196"])
@pytest.mark.parametrize("metric", ["recall@1", "nmi"])
def test_relative_improvements_are_those_of_the_values(ratio, data, metric):
    base, ours = (value("noise", f"{row}-{ratio}", data, metric) for row in ("ms", "obd-sd"))
    printed = value("noise", f"obd-sd-{ratio}", data, f"relative-{metric}")
    computed = 100 * (ours - base) / base
    assert (abs(computed - printed) > 0.005) == ((ratio, data, metric) in OFF)
    assert computed == pytest.approx(OFF.get((ratio, data, metric), printed), abs=0.005)


def test_what_the_paper_has_not_is_refused():
    with pytest.raises(InputError, match=r"table='element' is not in the paper; did you mean elements\?"):
        published("element")
    with pytest.raises(InputError, match=r"table='.' is not in the paper; there are strong-baselines, sota, elements, .*, omega$"):
        published("?")
