"""The table of what to do, from made-up records of whatever is there."""

import pytest

from study import advice
from study.records import add
from study.tests.made_up import cells_of, write_chosen, write_rows_of


@pytest.fixture
def recipes(places):
    """Two seeds of four rows on CUB, those of letters without the recipe; the held-out classes prefer another plain loss on each."""
    rows = {"ms": (0.40, 0.42), "ms-tuned": (0.1, 0.1), "supcon": (0.30, 0.30), advice.RECIPE: (0.45, 0.49), advice.CONTROL: (0.41, 0.43)}
    write_rows_of("cub224-recipes/test", rows)
    write_rows_of("letters-recipes/test", {"ms": (0.5, 0.5), "supcon": (0.2, 0.2)})
    for regime, best in (("cub224-recipes", "ms"), ("letters-recipes", "supcon")):
        (places / "results" / regime).mkdir(parents=True, exist_ok=True)
        write_chosen(places, regime, {row: {} for row in rows}, {best: 0.9})
    return places


def reranked(row, seed, recall, again):
    scores = {"recall@1": recall, "map@r": recall / 10}
    diffusion = {"recall@1": again, "map@r": again / 5}
    add(f"cub224-recipes/test/{row}/seed-{seed}", {"scores": scores, "reranked": {"diffusion": diffusion}})


def line(title):
    lines = [
        cells for cells in cells_of(advice.advice_table("")) if cells[0].split("<br>")[0].strip("*").removeprefix("control: ") == title
    ]
    return [cell.replace("<br>", ", ") for cell in lines[0][1:]] if lines else None


def test_a_recipe_stands_beside_the_plain_loss_and_its_control_below(recipes):
    """Gains of 5 and 7 points: 6 ± 12.706 · 1; of the control 1 and 1."""
    assert [advice.plain_of(regime) for regime in ("cub224-recipes", "letters-recipes")] == ["ms", "supcon"]
    assert line(advice.RECIPE_NAME) == ["47.0, +6.0 (-6.7 to +18.7)", "4.7, +0.6 (-0.7 to +1.9)", "", ""]
    assert line(advice.CONTROL_NAME) == ["42.0, +1.0 (+1.0 to +1.0)", "4.2, +0.1 (+0.1 to +0.1)", "", ""]
    assert line("PSD") is None  # has no records yet
    assert line("re-rank what a trained head finds") is None


def test_re_ranked_rows_stand_beside_the_same_runs_by_cosine(recipes):
    for seed in (0, 1):
        reranked("ms", seed, 0.4, 0.5)
        reranked(advice.RECIPE, seed, 0.45, 0.6)
    assert line("re-rank what a trained head finds")[0] == "50.0, +10.0 (+10.0 to +10.0)"
    assert line(f"{advice.RECIPE_NAME}, re-ranked")[:2] == ["60.0, +10.0 (+10.0 to +10.0)", "12.0, +2.0 (+2.0 to +2.0)"]
    table = {cells[0]: cells[1:] for cells in cells_of(advice.recipes_table("CUB"))}
    assert [*table] == ["ms", "ms-tuned", "supcon", advice.RECIPE, advice.CONTROL]
    assert table["ms"] == ["2", "40.0", "4.0", "", "", "50.0", "10.0", "", ""]
    assert table[advice.RECIPE][4:8] == ["+0.50 (+0.50 to +0.50)", "60.0", "12.0", "+10.00 (+10.00 to +10.00)"]
    assert table["supcon"][5:] == ["", "", "", ""]


def test_the_table_of_the_readme_has_each_row_with_and_without_re_ranking(recipes):
    reranked("ms", 0, 0.4, 0.5)
    lines = {cells[0]: cells[1:] for cells in cells_of(advice.short_table(""))}
    assert lines["plain loss"] == ["41.0", "4.1", "20.0", "2.0"]
    assert lines["plain loss, re-ranked"] == ["50.0", "10.0", "", ""]
    assert lines[advice.RECIPE_NAME][:2] == ["47.0", "4.7"]
    assert list(lines)[:2] == ["untrained features", "untrained features, re-ranked"]


def test_the_recipe_stands_beside_what_it_must_beat(recipes):
    assert cells_of(advice.recipe_gains_table("CUB"))[0][:3] == [
        advice.RECIPE,
        "+17.00 (-8.41 to +42.41)",
        "+5.00 (-7.71 to +17.71)",
    ]


def test_gains_of_the_picture_are_those_of_the_table(recipes):
    (_, data, gain, control), *others = [each for each in advice.gains("R@1") if each[0] == advice.RECIPE_NAME]
    assert (data, others) == ("CUB", [])
    assert (gain.mean, control.mean) == (pytest.approx(6), pytest.approx(1))
