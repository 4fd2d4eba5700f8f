"""The table of what to do, from made-up records of whatever is there."""

import json

import pytest

from study import advice, numbers
from study.records import add
from study.tests.made_up import cells_of, write_chosen, write_rows_of


@pytest.fixture
def recipes(places):
    """Two seeds of five rows on CUB, three of the plain losses on averages, and on letters plain losses alone.

    The held-out classes prefer another plain loss on each."""
    rows = {"ms": (0.40, 0.42), "ms-tuned": (0.1, 0.1), "supcon": (0.30, 0.30), "soft": (0.45, 0.49), "soft-uniform": (0.41, 0.43)}
    plain = {"ms": (0.5, 0.5), "ms-tuned": (0.2, 0.2)}
    write_rows_of("cub224-gem/test", rows)
    write_rows_of("cub224-recipes/test", {"ms": (0.1, 0.1), "ms-tuned": (0.39, 0.37, 0.9)})
    write_rows_of("letters-gem/test", plain)
    for regime, best in (("cub224-gem", "ms"), ("cub224-recipes", "ms-tuned"), ("letters-gem", "ms-tuned")):
        (places / "results" / regime).mkdir(parents=True, exist_ok=True)
        write_chosen(places, regime, {row: {} for row in rows}, {best: 0.9})
    return places


def reranked(row, seed, recall, again):
    scores = {"recall@1": recall, "map@r": recall / 10}
    diffusion = {"recall@1": again, "map@r": again / 5}
    add(f"cub224-gem/test/{row}/seed-{seed}", {"scores": scores, "reranked": {"diffusion": diffusion}})


def line(title):
    lines = [
        cells for cells in cells_of(advice.advice_table("")) if cells[0].split("<br>")[0].strip("*").removeprefix("control: ") == title
    ]
    return [cell.replace("<br>", ", ") for cell in lines[0][1:]] if lines else None


def test_a_teacher_stands_beside_the_plain_loss_and_its_control_below(recipes):
    """Gains of 5 and 7 points: 6 ± 12.706 · 1; of the control 1 and 1."""
    assert [advice.plain_of(regime) for regime in ("cub224-gem", "letters-gem", "letters-recipes")] == ["ms", "ms-tuned", "ms"]
    assert line("soft labels") == ["47.0, +6.0 (-6.7 to +18.7)", "4.7, +0.6 (-0.7 to +1.9)", "", ""]
    assert line("smooth labels, no teacher") == ["42.0, +1.0 (+1.0 to +1.0)", "4.2, +0.1 (+0.1 to +0.1)", "", ""]
    assert line("PSD") is None  # has no records yet
    assert line("re-rank what a trained head finds") is None


def test_pooling_and_length_stand_beside_the_best_plain_loss_before_over_the_seeds_of_both(recipes):
    """Gains of 40 - 39 and 42 - 37; the third seed of the other has no partner. Each alone has a plain loss of its own."""
    assert line("generalised-mean pooling and 512 numbers, plain loss")[:2] == ["41.0, +3.0 (-22.4 to +28.4)", "4.1, +0.3 (-2.2 to +2.8)"]
    assert line("the pooling alone") is None
    write_rows_of("cub224-gem-128/test", {"ms": (0.2, 0.2), "ms-tuned": (0.41, 0.39)})
    write_chosen(recipes, "cub224-gem-128", {"ms": {}, "ms-tuned": {}}, {"ms-tuned": 0.9})
    assert line("the pooling alone")[0] == "40.0, +2.0 (+2.0 to +2.0)"


def test_re_ranked_rows_stand_beside_the_same_runs_by_cosine(recipes):
    for seed in (0, 1):
        reranked("ms", seed, 0.4, 0.5)
        reranked("soft", seed, 0.45, 0.6)
    assert line("re-rank what a trained head finds")[0] == "50.0, +10.0 (+10.0 to +10.0)"
    table = {cells[0]: cells[1:] for cells in cells_of(advice.recipes_table("cub224-gem"))}
    assert [*table] == ["ms", "ms-tuned", "supcon", "soft", "soft-uniform"]
    assert table["ms"] == ["2", "90.0", "40.0", "4.0", "", "", "50.0", "10.0", "", ""]
    assert table["soft"][5:9] == ["+0.50 (+0.50 to +0.50)", "60.0", "12.0", "+10.00 (+10.00 to +10.00)"]
    assert table["supcon"][6:] == ["", "", "", ""]


def test_the_table_of_the_readme_has_each_row_with_and_without_re_ranking(recipes, monkeypatch):
    reranked("ms", 0, 0.4, 0.5)
    found = {"none": {"recall@1": 20.0, "map@r": 3.0}, "diffusion": {"recall@1": 30.0, "map@r": 4.0}}
    places = [place.partition("/")[2] for of in advice.DATA.values() for place in (of["averages"], of["gem"])]
    (recipes / "reranking.json").write_text(json.dumps({place: {"test": found} for place in places}))
    monkeypatch.setattr(numbers, "RESULTS", recipes)
    lines = {cells[0]: cells[1:] for cells in cells_of(advice.short_table(""))}
    assert lines["a head on these, Multi-Similarity, 512 numbers"] == ["41.0", "4.1", "20.0", "2.0"]
    assert lines["a head on these, Multi-Similarity, 512 numbers, re-ranked"] == ["50.0", "10.0", "", ""]
    assert lines["untrained, `--pooling gem`"][:2] == ["20.0", "3.0"]
    assert lines["untrained, `--pooling gem`, re-ranked"][:2] == ["30.0", "4.0"]
    assert list(lines)[:2] == ["untrained features", "untrained features, re-ranked"]


def test_soft_labels_stand_beside_what_they_must_beat(recipes):
    title, beside_supcon, beside_smooth, *_ = cells_of(advice.soft_labels_table(""))[0]
    assert (title, beside_supcon, beside_smooth) == ("CUB, generalised mean", "+17.00 (-8.41 to +42.41)", "+5.00 (-7.71 to +17.71)")


def test_gains_of_the_picture_are_those_of_the_table(recipes):
    (_, data, gain, control), *others = [each for each in advice.gains("R@1") if each[0] == "soft labels"]
    assert (data, others) == ("CUB", [])
    assert (gain.mean, control.mean) == (pytest.approx(6), pytest.approx(1))
