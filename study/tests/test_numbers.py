"""A marked number of a page is what the records say, and none is left unmarked."""

import pytest

from study import numbers, tables
from study.records import ROOT, add
from study.tests.made_up import write_chosen, write_rows_of

STRICT = ("results.md", "results-recipes.md", "results-small-features.md", "results-search.md")
"""Pages whose every result in a sentence names its record."""


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_a_page_holds_the_numbers_of_the_records(page):
    text = page.read_text()
    assert numbers.filled(text) == text


@pytest.mark.parametrize("page", STRICT)
def test_every_result_in_a_sentence_names_its_record(page):
    assert numbers.unmarked((ROOT / "docs" / page).read_text()) == []


@pytest.fixture
def runs(places):
    """Recall@1 30, 50 of the plain loss, 40, 80 of PSD; MAP@R is a tenth; seed 7 has no partner."""
    write_rows_of("cub-linear-free/test", {"ms": (0.3, 0.5), "psd": (0.4, 0.8)})
    write_rows_of("letters-linear-free/test", {"ms": (0.2, 0.3)})
    add("cub-linear-free/test/psd/seed-7", {"scores": {"recall@1": 0.9, "map@r": 0.9}})
    write_chosen(places, "cub-linear-free", {"ms": {}}, {"ms": 0.625})
    return places


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("R@1 of ms in cub-linear-free", 40),
        ("MAP@R of ms in cub-linear-free", 4),
        ("R@1 of psd in cub-linear-free", (40 + 80 + 90) / 3),
        ("R@1 of psd - ms in cub-linear-free", (10 + 30) / 2),
        ("R@1 of psd / ms in cub-linear-free", 100 * (60 / 40 - 1)),
        ("low end of R@1 of psd - ms in cub-linear-free", 20 - 12.7062 * 10),  # t of one degree of freedom × the standard error
        ("high end of R@1 of psd - ms in cub-linear-free", 20 + 12.7062 * 10),
        ("R@1 of ms - ms in letters-linear-free in cub-linear-free", (10 + 20) / 2),
        ("R@1 of ms in letters-linear-free - psd in cub-linear-free", (-20 - 50) / 2),
        ("R@1 of ms in cub-linear-free/held-out", 62.5),
        ("spectral decay of ms in cub-linear-free", 0.2),
    ],
)
def test_a_number_is_what_its_mark_asks_for(runs, question, answer):
    assert numbers.value_of(question) == pytest.approx(answer, abs=1e-3)


def test_rows_have_what_they_come_to_re_ranked_and_untrained(runs):
    again = {"scores": {"recall@1": 0.3, "map@r": 0.1}, "reranked": {"diffusion": {"recall@1": 0.4, "map@r": 0.2}}}
    add("cub-linear-free/test/ms/seed-0", {**again, "reference": {"frozen features": {"recall@1": 0.1, "map@r": 0.05}}})
    assert list(numbers.rows_in("cub-linear-free")) == ["frozen features", "ms", "psd", "ms re-ranked"]
    assert numbers.value_of("MAP@R of ms re-ranked - ms in cub-linear-free") == pytest.approx(10)
    assert numbers.value_of("R@1 of ms - frozen features in cub-linear-free") == pytest.approx((20 + 40) / 2)


def test_numbers_of_other_records_have_places_too():
    """By the files that are committed: the re-rankers' in percent, the teachers' one run of frozen features beside every seed."""
    assert numbers.value_of("MAP@R of none in reranking/CUB, frozen, 224 px") == pytest.approx(12.8, abs=0.05)
    taught = numbers.value_of("R@1 of without labels, taught in teachers")
    gain = numbers.value_of("R@1 of without labels, taught - frozen features in teachers")
    assert gain == pytest.approx(taught - numbers.value_of("R@1 of frozen features in teachers"))


def test_a_cell_of_a_table_is_a_number_too(runs):
    assert numbers.value_of("linear head, all chosen of + PSD in table headline:regimes") == 70.0
    write_rows_of("cub-linear-free/noise-0.2", {"ms": (0.2, 0.4), "psd": (0.3, 0.6)})
    assert numbers.value_of("relative of 20%, psd in table noise:cub-linear-free") == 50.0


def test_the_number_keeps_its_decimals_and_its_sign(runs):
    plain, gain = "<!-- R@1 of ms in cub-linear-free -->", "<!-- R@1 of psd - ms in cub-linear-free -->"
    text = f"ends 1{plain} (1.00{plain}), -0.5{gain} or 0.5{gain}; from 1-2{plain} of 3<!-- given -->\n<!-- end -->"
    made = f"ends 40{plain} (40.00{plain}), +20.0{gain} or 20.0{gain}; from 1-40{plain} of 3<!-- given -->\n<!-- end -->"
    assert tables.filled(text) == made
    assert [numbers.written(value, like) for value, like in ((-0.04, "+1.0"), (-0.04, "1.0"), (-2.6, "3"), (2.6, "±0"))] == [
        "±0.0",
        "0.0",
        "-3",
        "+3",
    ]


def test_results_without_a_mark_are_found():
    text = """# 5.5 points
The loss has 38.3, +0.8 points, half of it 5 %; with λ = 0.5 at `2.5` (95 % intervals)
and 9.9<!-- R@1 of ms in cub-linear-free -->, not 30<!-- given --> %.
| 1.5 | 2 % |
```
7.5
```
[4 points](page-1.5.md), 128 px, ten seeds, 3 epochs."""
    assert numbers.unmarked(text) == ["38.3", "+0.8", "5 %", "4 points"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("of all", r"<!-- of all --> does not say what the number is; write it as <!-- R@1 of psd - ms in cub-linear-free -->"),
        ("R@3 of ms in cub-linear-free", r"<!-- R@3 of ms in cub-linear-free -->: there is no score R@3; there are R@1, R@2"),
        ("R@1 of margin in cub-linear-free", "there is no row margin in cub-linear-free; there are ms, psd"),
        ("R@1 of ms in nowhere", "there is no row ms in nowhere; there are none"),
        (
            "R@3 of + PSD in table headline:regimes",
            r"the table headline:regimes has no cell R@3 of \+ PSD; its columns are Recall@1, linear head",
        ),
    ],
)
def test_a_mark_that_asks_for_nothing_is_told(runs, question, message):
    with pytest.raises(SystemExit, match=message):
        numbers.value_of(question)
