import numpy as np
import pytest

from obdsd.models.agreement import NEAREST, agreement, least_cosine


def circle(*degrees: float) -> np.ndarray:
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def by_hand(truth: np.ndarray, rows: np.ndarray) -> tuple[int, float]:
    """Item by item, with sorting."""
    same, apart = 0, 0.0
    for item in range(len(truth)):
        others = [other for other in range(len(truth)) if other != item]
        wanted, found = (sorted(others, key=lambda other, m=m: -float(m[item] @ m[other]))[:NEAREST] for m in (truth, rows))
        same += wanted == found
        cosines = [[float(truth[item] @ truth[other]) for other in order] for order in (wanted, found)]
        apart = max(apart, *(abs(a - b) for a, b in zip(*cosines, strict=True)))
    return same, apart


@pytest.mark.parametrize("noise", [0.0, 1e-2, 0.3])
def test_it_is_what_a_comparison_item_by_item_finds(noise, monkeypatch):
    monkeypatch.setattr("obdsd.models.agreement.CHUNK", 7)
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(40, 6)).astype(np.float32)
    rows = (truth + noise * rng.normal(size=truth.shape)).astype(np.float32)
    truth, rows = (matrix / np.linalg.norm(matrix, axis=1, keepdims=True) for matrix in (truth, rows))
    found = agreement(truth, rows)
    same, apart = by_hand(truth, rows)
    assert (found.items, found.nearest, found.same) == (40, NEAREST, same)
    assert found.apart == pytest.approx(apart, abs=1e-6)
    assert found.cosine == pytest.approx(min(float(a @ b) for a, b in zip(truth, rows, strict=True)), abs=1e-6)
    assert (found.same == 40) == (noise == 0)
    assert (found.apart == 0) == (noise == 0)


def test_the_least_cosine_counts_and_lengths_do_not():
    assert least_cosine(circle(0, 90, 180), 3 * circle(0, 90, 120)) == pytest.approx(1 / 2)


def test_one_item_has_no_nearest():
    assert str(agreement(circle(30), circle(30))) == "least cosine 1.0000000"


def test_items_that_are_equally_near_may_change_places():
    truth = circle(0, 10, -10.001)
    found = agreement(truth, circle(0, 10.002, -10.001))
    assert found.same == 2
    assert 0 < found.apart < 1e-5
    found.check("x.onnx")
    assert "2 of 3 (where not, their cosines differ by" in str(found)


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (circle(0, 10.3, -10.2), "the least cosine is 0.999986 and must be 0.99999"),
        (circle(0, 10.2, -10.1), r"their nearest come in another order \(least cosine 0.9999939; the 2 nearest .*: 2 of 3"),
        (circle(0, np.nan, 3), "the least cosine is nan and must be 0.99999"),
    ],
)
def test_other_rows_and_other_answers_are_refused(rows, line):
    with pytest.raises(ValueError, match=f"^x.onnx: its rows are not those of torch, {line}.*; stay with torch for this model$"):
        agreement(circle(0, 10, -10.1), rows).check("x.onnx")
