"""Every re-ranker against its slow literal definition (tests/oracles/reranking.py), and what holds for all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obdsd import InputError
from obdsd.catalogue import RERANKERS
from obdsd.search import Fitted
from tests.oracles import reranking as literal

SPECS = [
    "none",
    "diffusion",
    "diffusion(neighbours=4, power=1, omega=0.5, graph=mutual, reach=12)",
    "alpha-qe",
    "alpha-qe(neighbours=3, alpha=1, augment=false)",
    "alpha-qe(diffusion(neighbours=4), neighbours=3)",
    "k-reciprocal",
    "k-reciprocal(neighbours=6, expansion=1, original=0)",
]


def unit(rows):
    rows = np.asarray(rows, dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def clusters(n, dim, seed, classes=5, spread=0.7):
    """Unit rows around a few centres."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(classes, dim))
    return unit(centres[generator.integers(classes, size=n)] + spread * generator.normal(size=(n, dim)))


def scores_of(fitted: Fitted, queries, own=None):
    """The score of every item for each query, NaN for the query itself."""
    found = fitted.search(queries, len(fitted.rows) - (own is not None), own)
    table = np.full((len(queries), len(fitted.rows)), np.nan)
    np.put_along_axis(table, found.positions, found.scores.astype(float), axis=1)
    return table


many = st.integers(0, 10**6)


@given(n=st.integers(5, 30), seed=many, omega=st.sampled_from([0.0, 0.5, 0.9, 0.99]), graph=st.sampled_from(["union", "mutual"]))
def test_diffusion_of_items_is_the_dense_closed_form(n, seed, omega, graph):
    rows, k = clusters(n, 6, seed), 3
    fitted = RERANKERS.build(f"diffusion(neighbours={k}, power=3, omega={omega}, graph={graph}, reach={n})").fit(rows)
    W = literal.affinity(rows.astype(float), k, 3, graph)
    for item, found in enumerate(scores_of(fitted, rows, np.arange(n))):
        want = literal.walk(W, item, omega)
        want[item] = np.nan
        np.testing.assert_allclose(found, want, rtol=1e-3, atol=2e-5)


@given(n=st.integers(5, 30), seed=many, omega=st.sampled_from([0.1, 0.5, 0.9, 0.99]), graph=st.sampled_from(["union", "mutual"]))
def test_diffusion_of_other_queries_is_that_of_the_extended_graph(n, seed, omega, graph):
    rows = clusters(n + 3, 6, seed)
    rows, queries = rows[:n].astype(float), rows[n:]
    k = 4
    fitted = RERANKERS.build(f"diffusion(neighbours={k}, power=3, omega={omega}, graph={graph}, reach={n})").fit(rows)
    W = literal.affinity(rows, k, 3, graph)
    for query, found in zip(queries, scores_of(fitted, queries), strict=True):
        np.testing.assert_allclose(found, literal.walk_of_query(rows, W, query.astype(float), k, 3, omega), rtol=1e-3, atol=2e-5)


def overlap(one, other, k):
    return np.mean([len({*a[:k]} & {*b[:k]}) / k for a, b in zip(one, other, strict=True)])


def test_a_short_reach_ranks_nearly_as_the_exact_walk():
    rows = clusters(1200, 24, seed=0, classes=60, spread=0.6)
    gallery, queries = rows[:1000], rows[1000:]
    exact, near, nearer = (RERANKERS.build(f"diffusion(reach={reach})").fit(gallery) for reach in (1000, 60, 200))
    for asked, own in ((gallery[:200], np.arange(200)), (queries, None)):
        want, found, better = (each.search(asked, 20, own).positions for each in (exact, near, nearer))
        assert overlap(found, want, 20) > 0.9
        assert overlap(better, want, 20) > 0.97


@given(n=st.integers(4, 30), seed=many, alpha=st.sampled_from([0.0, 1.0, 3.0]), k=st.integers(1, 5), augment=st.booleans())
def test_expansion_is_its_literal_definition(n, seed, alpha, k, augment):
    rows = clusters(n + 2, 5, seed)
    rows, queries = rows[:n], rows[n:]
    fitted = RERANKERS.build(f"alpha-qe(neighbours={k}, alpha={alpha}, augment={augment})").fit(rows)
    wide = rows.astype(float)
    searched = np.array([literal.expanded(wide, row, k, alpha, i) for i, row in enumerate(wide)]) if augment else wide
    for query, found in zip(queries, scores_of(fitted, queries), strict=True):
        np.testing.assert_allclose(found, searched @ literal.expanded(wide, query, k, alpha), atol=2e-6)
    for item, found in enumerate(scores_of(fitted, rows, np.arange(n))):
        want = searched @ literal.expanded(wide, wide[item], k, alpha, item)
        want[item] = np.nan
        np.testing.assert_allclose(found, want, atol=2e-6)


@given(n=st.integers(8, 30), seed=many, k1=st.integers(2, 7), k2=st.integers(1, 4), share=st.sampled_from([0.0, 0.3, 1.0]))
def test_k_reciprocal_is_its_literal_definition(n, seed, k1, k2, share):
    rows, k2 = clusters(n + 2, 5, seed), min(k1, k2)
    rows, queries = rows[:n], rows[n:]
    fitted = RERANKERS.build(f"k-reciprocal(neighbours={k1}, expansion={k2}, original={share})").fit(rows)
    for query, found in zip(queries, scores_of(fitted, queries), strict=True):
        np.testing.assert_allclose(-found, literal.reciprocal_distances(rows, k1, k2, share, query=query), atol=3e-6)
    for item, found in enumerate(scores_of(fitted, rows, np.arange(n))):
        want = literal.reciprocal_distances(rows, k1, k2, share, own=item)
        want[item] = np.nan
        np.testing.assert_allclose(-found, want, atol=3e-6)


@pytest.mark.parametrize("spec", SPECS)
def test_what_was_kept_answers_as_what_was_fitted(spec):
    rows, queries, part = clusters(60, 8, 0), clusters(7, 8, 1), RERANKERS.build(spec)
    fitted = part.fit(rows)
    arrays = fitted.arrays()
    assert all(isinstance(array, np.ndarray) and array.dtype != object for array in arrays.values())
    again = part.restore(rows, arrays)
    for asked, own in ((queries, None), (rows[3:9], np.arange(3, 9))):
        for one, other in zip(fitted.search(asked, 20, own), again.search(asked, 20, own), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("spec", SPECS)
def test_answers_are_distinct_in_order_and_never_the_query(spec):
    rows = clusters(80, 8, 2)
    rows[40:44] = rows[:4]  # copies are found
    fitted = RERANKERS.build(spec).fit(rows)
    for k in (1, 7, 79):
        found = fitted.search(rows, k, np.arange(80))
        assert found.scores.dtype == np.float32
        assert found.positions.dtype == np.int64
        assert found.scores.shape == found.positions.shape == (80, k)
        assert (np.diff(found.scores, axis=1) <= 0).all()
        assert not (found.positions == np.arange(80)[:, None]).any()
        assert all(len({*row}) == k and 0 <= min(row) and max(row) < 80 for row in found.positions.tolist())
    everything = fitted.search(clusters(3, 8, 3), 80)
    assert (np.sort(everything.positions, axis=1) == np.arange(80)).all()


@pytest.mark.parametrize("spec", SPECS)
def test_one_query_alone_is_answered_as_among_others(spec, monkeypatch):
    rows, queries = clusters(50, 8, 4), clusters(9, 8, 5)
    fitted = RERANKERS.build(spec).fit(rows)
    together = fitted.search(queries, 10)
    for i in range(9):
        alone = fitted.search(queries[i : i + 1], 10)
        np.testing.assert_array_equal(alone.positions[0], together.positions[i])
    monkeypatch.setattr("obdsd.search.reranker.CHUNK_ROWS", 4)
    monkeypatch.setattr("obdsd.search.k_reciprocal.CHUNK_BYTES", 2 * 4 * 50)
    np.testing.assert_array_equal(fitted.search(queries, 10).positions, together.positions)


@pytest.mark.parametrize("spec", SPECS)
def test_progress_ends_where_the_work_does(spec):
    told = {}
    RERANKERS.build(spec).fit(clusters(40, 8, 0), progress=lambda stage, done, total: told.update({stage: (done, total)}))
    assert all(done == total == 40 for done, total in told.values())
    assert told or spec == "none" or "augment=false" in spec


def test_items_that_no_walk_reaches_follow_by_cosine():
    """Two pairs far apart: from the one the walk never reaches the other, whose items still come, the nearer first."""
    rows = unit([[1, 0, 0], [1, 0.1, 0], [0, 1, 0.2], [0, 1, 0.1], [-1, 0, 0]])
    fitted = RERANKERS.build("diffusion(neighbours=1)").fit(rows)
    found = fitted.search(rows[:1], 4, [0])
    assert found.positions.tolist() == [[1, 2, 3, 4]] or found.positions.tolist() == [[1, 3, 2, 4]]
    assert (found.scores[0] > 0).tolist() == [True, False, False, False]


def test_a_query_that_is_like_nothing_is_answered_by_cosine():
    rows = unit([[1, 0, 0], [0, 1, 0], [1, 1, 0], [1, 2, 0.1]])
    query = unit([[-1, -2, 0.1]])
    for spec in ("diffusion(neighbours=2)", "k-reciprocal(neighbours=2, expansion=1)"):
        found = RERANKERS.build(spec).fit(rows).search(query, 4)
        assert found.positions.tolist() == np.argsort(-(rows @ query[0]))[None].tolist()


def test_reranking_helps_on_a_chain_where_the_cosine_does_not():
    """Points along two arcs: the far end of one's own arc is farther than the other arc, but the walk goes along it."""
    angles = np.linspace(0, 2.2, 40)
    arc = np.stack([np.cos(angles), np.sin(angles), np.full(40, 0.25)], axis=1)
    rows, labels = unit(np.concatenate([arc, arc * [1, 1, -1]])), np.repeat([0, 1], 40)
    precision = {}
    for spec in ("none", "diffusion(neighbours=3, omega=0.99)"):
        found = RERANKERS.build(spec).fit(rows).search(rows, 39, np.arange(80))
        precision[spec] = (labels[found.positions] == labels[:, None]).mean()
    assert precision["none"] < 0.7
    assert precision["diffusion(neighbours=3, omega=0.99)"] > 0.95


ROWS = clusters(12, 4, 0)
REFUSED = [
    ("diffusion(neighbours=0)", "neighbours=0 must be 1 or more; try 10"),
    ("diffusion(reach=1)", "reach=1 must be 2 or more; try 300"),
    ("diffusion(omega=1)", "omega=1.0 must lie in"),
    ("diffusion(omega=0.99999)", "is too near 1"),
    ("diffusion(power=0)", "power=0.0 must be a positive"),
    ("diffusion(graph=ring)", "graph"),
    ("alpha-qe(neighbours=0)", "neighbours=0 must be 1 or more; try 10"),
    ("alpha-qe(alpha=-1)", "alpha=-1.0 must lie in 0..100; try 3"),
    ("alpha-qe(diffusion(neighbours=0))", "neighbours=0 must be 1 or more"),
    ("k-reciprocal(neighbours=1)", "neighbours=1 must be 2 or more; try 20"),
    ("k-reciprocal(neighbours=4)", "expansion=6 must lie in 1..4, the neighbours; try 6"),
    ("k-reciprocal(original=2)", "original=2.0 must lie in 0..1; try 0.3"),
    ("diffusoin", "rerank=diffusoin is not known; did you mean diffusion?"),
]


@pytest.mark.parametrize(("spec", "message"), REFUSED)
def test_bad_settings_are_refused(spec, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        RERANKERS.build(spec)


CALLS = [
    (lambda fitted: fitted.search(ROWS, 13), "k=13 must lie in 1..12, the items that can be found; ask for fewer"),
    (lambda fitted: fitted.search(ROWS, 12, range(12)), "k=12 must lie in 1..11"),
    (lambda fitted: fitted.search(ROWS, 0), "k=0 must lie in 1..12"),
    (lambda fitted: fitted.search(ROWS[:, :3], 2), "queries of dim 3 must have the gallery's dim 4; embed both with one model"),
    (lambda fitted: fitted.search(ROWS, 2, [1, 2]), "own of 2 positions must have one for each of the 12 queries"),
    (lambda fitted: fitted.search(ROWS[:1], 2, [12]), "own must be positions in the gallery, whole numbers in 0..11"),
    (lambda fitted: fitted.search(ROWS[:1], 2, [0.5]), "own must be positions in the gallery"),
    (lambda fitted: fitted.search(np.zeros((1, 4)), 2), "queries.embeddings: 1 rows hold only zeros"),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_bad_questions_are_refused(call, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        call(RERANKERS.build("none").fit(ROWS))


@pytest.mark.parametrize("spec", ["diffusion", "k-reciprocal"])
def test_a_gallery_of_one_has_no_graph(spec):
    with pytest.raises(InputError, match="rows: a gallery of 1 item has no neighbours; give 2 or more"):
        RERANKERS.build(spec).fit(ROWS[:1])


@pytest.mark.parametrize("spec", ["diffusion", "alpha-qe", "k-reciprocal", "alpha-qe(diffusion, augment=false)"])
def test_work_on_another_gallery_is_refused(spec):
    part = RERANKERS.build(spec)
    arrays = part.fit(ROWS).arrays()
    with pytest.raises(InputError, match=r"arrays: '\w+' of shape .* does not fit this gallery; fit it again"):
        part.restore(ROWS[:-1], arrays)
    with pytest.raises(InputError, match=r"arrays: '\w+' is missing; the gallery was fitted by another re-ranker, fit it again"):
        part.restore(ROWS, {})


@pytest.mark.parametrize("spec", ["diffusion", "k-reciprocal"])
def test_positions_that_do_not_exist_are_refused(spec):
    part = RERANKERS.build(spec)
    arrays = part.fit(ROWS).arrays()
    with pytest.raises(InputError, match="arrays: 'positions' must be those of 12 items; fit the gallery again"):
        part.restore(ROWS, arrays | {"positions": arrays["positions"] + 12})
