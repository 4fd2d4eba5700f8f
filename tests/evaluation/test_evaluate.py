from __future__ import annotations

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy
from sklearn.metrics import adjusted_mutual_info_score, mutual_info_score

from obdsd.evaluation import Points, clustering, evaluate, retrieval
from obdsd.evaluation.geometry import density
from obdsd.evaluation.scores import geometry
from tests.oracles import slow
from tests.refusing import refused


def rows(count: int, dim: int, seed: int) -> np.ndarray:
    return slow.unit_rows(count, dim, seed).double().numpy()


def clustered(count: int, classes: int, dim: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows around class centres, near enough to each other for some mistakes."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(count) % classes)
    z = generator.standard_normal((classes, dim))[labels] + 1.2 * generator.standard_normal((count, dim))
    return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32), labels


def metrics(embeddings, labels, ks, query=None, groups=None):
    """The retrieval metrics by their definitions: sort everything, count in loops. By name, their values over the queries that count."""
    asked = (embeddings, labels, groups) if query is None else query
    found = {name: [] for name in (*(f"recall@{k}" for k in ks), "r-precision", "map@r")}
    for i in range(len(asked[0])):
        others = []
        for j in range(len(embeddings)):
            itself = query is None and i == j
            same_group = groups is not None and labels[j] == asked[1][i] and groups[j] == asked[2][i]
            if not itself and not same_group:
                others.append((-float(np.dot(asked[0][i], embeddings[j])), j))
        hits = [bool(labels[j] == asked[1][i]) for _, j in sorted(others)]
        right = sum(hits)
        if right == 0:
            continue
        for k in ks:
            found[f"recall@{k}"].append(any(hits[:k]))
        found["r-precision"].append(sum(hits[:right]) / right)
        found["map@r"].append(sum(sum(hits[: n + 1]) / (n + 1) for n in range(right) if hits[n]) / right)
    return found


def assert_same(scores, truth):
    assert scores.queries == len(truth["map@r"])
    assert {name: scores[name] for name in truth} == {name: pytest.approx(np.mean(values)) for name, values in truth.items()}


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_metrics_are_those_of_the_definitions(seed, separate, grouped):
    generator = np.random.default_rng(seed)
    z, labels = rows(24, 3, seed), generator.integers(0, 6, 24)
    groups = generator.integers(0, 3, 24) if grouped else None
    query = None
    if separate:
        query = (rows(9, 3, seed + 1), generator.integers(0, 7, 9), generator.integers(0, 3, 9) if grouped else None)
    truth = metrics(z, labels, (1, 2, 5), query, groups)
    assert_same(evaluate(z, labels, (1, 2, 5), query=query, groups=groups, clusters=False), truth)


@pytest.mark.parametrize("case", ["metrics0", "metrics1"])
def test_the_published_codes_numbers(reference, case):
    scores = evaluate(reference[f"{case}/features"], reference[f"{case}/labels"], ks=(1, 2, 4, 8, 10), clusters=False)
    for k in (1, 2, 4, 8, 10):
        assert scores[f"recall@{k}"] == pytest.approx(reference[f"{case}/recall@{k}"].item(), abs=1e-12)
    assert scores["density"] == pytest.approx(reference[f"{case}/dists@intra_over_inter"].item(), rel=1e-5)
    assert scores["spectral-decay"] == pytest.approx(reference[f"{case}/rho_spectrum@3"].item(), rel=1e-4)


def test_a_row_never_finds_itself_but_finds_its_copies():
    z = np.repeat(np.eye(4), 2, axis=0)  # four directions, each twice
    assert evaluate(z, np.repeat(np.arange(4), 2), ks=(1,), clusters=False)["recall@1"] == 1
    assert evaluate(z, np.tile(np.arange(4), 2), ks=(1,), clusters=False)["recall@1"] == 0
    alike = np.tile(np.eye(4)[:1], (40, 1))  # all the same: a row's own place in the list is anywhere, or nowhere
    assert 0 <= evaluate(alike, np.arange(40) % 2, ks=(1,), clusters=False)["recall@1"] <= 1


def test_a_query_with_nothing_to_find_does_not_count():
    z, labels = rows(7, 3, seed=2), np.array([0, 0, 1, 1, 1, 2, 3])
    scores = evaluate(z, labels, ks=(1,), details=True, clusters=False)
    assert (scores.queries, scores.lone_queries) == (5, 2)
    assert scores.counted.tolist() == [True] * 5 + [False] * 2
    assert scores.per_class.labels.tolist() == [0, 1]
    assert scores.per_class.queries.tolist() == [2, 3]


def test_details_average_to_the_scores():
    z, labels = clustered(200, 11, 4, seed=3)
    scores = evaluate(z, labels + 100, details=True, clusters=False)
    assert list(scores.per_query) == ["recall@1", "recall@2", "recall@4", "recall@8", "r-precision", "map@r"]
    assert scores.per_class.labels.tolist() == [100 + c for c in range(11)]
    for name, queries in scores.per_query.items():
        assert queries.mean() == pytest.approx(scores[name])
        assert scores.per_class.values[name].tolist() == pytest.approx([queries[labels == c].mean() for c in range(11)])
        assert np.average(scores.per_class.values[name], weights=scores.per_class.queries) == pytest.approx(scores[name])
    plain = evaluate(z, labels, clusters=False)
    assert (plain.counted, plain.per_query, plain.per_class) == (None, None, None)


def test_the_same_numbers_for_any_chunk_also_with_ties(monkeypatch):
    generator = np.random.default_rng(4)
    z, labels = generator.choice([-0.5, 0.5], (300, 4)), generator.integers(0, 9, 300)  # 16 directions: ties everywhere
    whole = evaluate(z, labels, seed=5, details=True)
    monkeypatch.setattr(retrieval, "CHUNK_ENTRIES", 1)
    chunked = evaluate(z, labels, seed=5, details=True)
    assert whole.as_dict() == chunked.as_dict()
    assert all((whole.per_query[name] == chunked.per_query[name]).all() for name in whole.per_query)


def test_arrays_tensors_lists_text_and_lengths_make_no_difference():
    z, labels = clustered(90, 6, 5, seed=6)
    expected = evaluate(z, labels).as_dict()
    assert evaluate(torch.from_numpy(z).requires_grad_(), torch.from_numpy(labels)).as_dict() == expected
    assert evaluate(z.tolist(), [f"class {c}" for c in labels]).as_dict() == expected
    longer = evaluate(z * np.linspace(1, 900, 90)[:, None], labels.astype(float)).as_dict()
    assert longer["map@r"] == pytest.approx(expected["map@r"])
    assert longer["density"] == pytest.approx(expected["density"], rel=1e-6)


def test_clusters_are_seeded_and_perfect_where_classes_are_apart():
    z, labels = clustered(400, 8, 12, seed=7)
    told = []
    first, again = evaluate(z, labels, seed=3), evaluate(z, labels, seed=3, progress=lambda *words: told.append(words))
    assert (told[0], told[-1]) == (("search", 0, 400), ("clustering", 20, 20))
    assert told.index(("search", 400, 400)) + 1 == told.index(("clustering", 0, 20))
    assert sorted(done for stage, done, _ in told if stage == "clustering") == [done for stage, done, _ in told if stage == "clustering"]
    assert first.as_dict() == again.as_dict()
    starts = {evaluate(z, labels, seed=seed)["nmi"] for seed in range(5)}
    assert len(starts) > 1
    apart = np.eye(5)[np.arange(100) % 5] + 0.01 * rows(100, 5, 0)
    scores = evaluate(apart, np.arange(100) % 5, restarts=10)
    assert (scores["nmi"], scores["ami"]) == (pytest.approx(1.0), pytest.approx(1.0))


@pytest.mark.parametrize(
    ("count", "clusters", "dim", "seed", "restarts"),
    [(300, 20, 8, 3, 1), (300, 20, 8, 3, 3), (3000, 5, 4, 7, 4), (60, 20, 5, 2**31 - 2, 2), (200, 150, 6, 0, 1)],
)
def test_k_means_by_iterations_is_that_of_faiss(count, clusters, dim, seed, restarts):
    """Bit for bit: told how far it is, it finds the same clusters. 3000 rows are too many for 5 clusters, so that some are drawn."""
    z, _ = clustered(count, clusters, dim, seed=4)
    how = {"niter": 20, "nredo": restarts, "early_stop_threshold": 1e-4, "min_points_per_centroid": 1}
    whole = faiss.Kmeans(dim, clusters, seed=seed, **how)
    whole.train(z)
    told = []
    found = clustering.kmeans(z, clusters, seed, restarts, lambda *numbers: told.append(numbers))
    np.testing.assert_array_equal(found, whole.assign(z)[1])
    assert told[-1] == (20 * restarts, 20 * restarts)


def test_more_restarts_never_worsen_the_objective():
    z, _ = clustered(300, 20, 8, seed=8)
    objective = {}
    for restarts in (1, 8):
        found = clustering.kmeans(z, 20, seed=0, restarts=restarts)
        objective[restarts] = np.square(z - np.stack([z[found == c].mean(axis=0) for c in range(20)])[found]).sum()
    assert objective[8] < objective[1]


def test_nmi_by_its_formula():
    generator = np.random.default_rng(9)
    labels, found = generator.integers(0, 4, 60), generator.integers(0, 5, 60)
    entropies = [entropy(np.bincount(side)) for side in (labels, found)]
    assert clustering.nmi(labels, found) == pytest.approx(2 * mutual_info_score(labels, found) / sum(entropies))


@pytest.mark.filterwarnings("ignore:The number of unique classes is greater than 50%")  # scikit-learn 1.7, the last for Python 3.10
@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(2, 40))
def test_ami_is_sklearns(seed, classes, clusters):
    generator = np.random.default_rng(seed)
    labels = np.r_[0, 1, generator.integers(0, classes, 58)]
    found = np.r_[0, 1, generator.integers(0, clusters, 58)]
    assert clustering.ami(labels, found) == pytest.approx(adjusted_mutual_info_score(labels, found), abs=1e-9)


def test_clusters_and_geometry_of_query_and_gallery_are_those_of_both():
    z, labels = clustered(120, 6, 5, seed=10)
    apart = evaluate(z[:80], labels[:80], query=Points(z[80:], labels[80:]))
    both = density(z, labels)
    assert (apart["intra"], apart["inter"]) == (pytest.approx(both.intra), pytest.approx(both.inter))
    assert apart["nmi"] == pytest.approx(evaluate(z, labels)["nmi"], abs=0.05)


GOOD, LABELS = np.eye(4), [0, 0, 1, 1]
BAD = [
    (lambda: evaluate(GOOD, None), "labels=None must be given; pass one for each of the 4 embeddings"),
    (lambda: evaluate(GOOD, [0, 0, 1]), "labels of shape (3,) must have one entry for each of the 4 embeddings"),
    (lambda: evaluate(GOOD, [0, 0.5, 1, 1]), "labels must be whole numbers or text, found float64 with fractions or NaN"),
    (lambda: evaluate(GOOD, LABELS, groups=[1]), "groups of shape (1,) must have one entry"),
    (lambda: evaluate(GOOD, LABELS), "ks=(1, 2, 4, 8): 8 is more than the 3 rows that can be found; ask for fewer"),
    (lambda: evaluate(GOOD, LABELS, ks=(0,)), "ks=(0,) must be positive whole numbers; try (1, 2, 4, 8)"),
    (lambda: evaluate(GOOD, LABELS, ks=()), "ks=() must be positive whole numbers"),
    (lambda: evaluate(GOOD, LABELS, ks=(1.5,)), "ks=(1.5,) must be positive whole numbers"),
    (lambda: evaluate(GOOD, [7] * 4), "labels hold one class ('7'); retrieval needs 2 or more"),
    (lambda: evaluate(GOOD, [0, 1, 2, 3], ks=(1,)), "labels: no query has another row of its class to find"),
    (lambda: evaluate(np.diag([1, np.nan, 1, 1]), LABELS), "embeddings: 1 rows hold NaN or infinite entries, the first is row 1"),
    (lambda: evaluate(np.diag([1.0, 1, 0, 0]), LABELS), "2 rows hold only zeros, the first is row 2; remove or recompute them"),
    (lambda: evaluate(np.ones(4), LABELS), "embeddings of shape (4,) and type float64 must be numbers of shape (items, dim)"),
    (lambda: evaluate(np.array([["a"]]), [0]), "must be numbers"),
    (lambda: evaluate(GOOD, LABELS, ks=(1,))["recall@3"], "scores: 'recall@3' was not measured; there are recall@1, r-precision,"),
    (lambda: geometry([1.0], [0]), "embeddings of shape (1,) and type float64 must be numbers"),
    (lambda: geometry(GOOD, [0, 1, 2, 3]), "labels of 4 classes, the largest of 1: density needs 2 classes and a pair in one"),
    (lambda: evaluate(GOOD, LABELS, query=(GOOD,)), "query of 1 entries must be (embeddings, labels)"),
    (lambda: evaluate(GOOD, LABELS, query=(np.eye(3), [0, 0, 1])), "query.embeddings of dim 3 must have the gallery's dim 4"),
    (lambda: evaluate(GOOD, LABELS, query=(GOOD * 0, LABELS)), "query.embeddings: 4 rows hold only zeros"),
    (lambda: evaluate(GOOD, LABELS, query=(GOOD, LABELS, LABELS)), "groups must be given for both query and gallery or for neither"),
]


test_bad_input_is_one_clear_line = refused(BAD)


def test_scores_as_json_have_no_infinity():
    flat = np.eye(10, 11)[np.arange(12) % 10]  # an eleventh direction that nothing uses
    scores = evaluate(flat, np.arange(12) % 6, ks=(1,), clusters=False)
    assert (scores["spectral-decay"], scores.as_dict()["spectral-decay"]) == (np.inf, None)
    assert evaluate(rows(12, 2, 0), np.arange(12) % 6, ks=(1,))["spectral-decay"] is None  # two directions leave none after the largest


def test_the_geometry_of_a_training_set_is_that_of_its_scores():
    z, labels = clustered(90, 6, 5, seed=12)
    scores = evaluate(z, labels, clusters=False)
    found = geometry(3 * z, [f"class {c}" for c in labels])
    assert found == {name: pytest.approx(scores[name], rel=1e-6) for name in ("density", "intra", "inter", "spectral-decay")}
    alike = np.repeat(np.eye(4), 2, axis=0)
    assert geometry(alike, np.arange(8) % 2)["density"] is None  # class means agree: infinite


def test_without_clusters_none_are_made(monkeypatch):
    monkeypatch.setattr(clustering, "kmeans", None)
    scores = evaluate(*clustered(60, 5, 4, seed=13), clusters=False)
    assert [name for name, value in scores.values.items() if value is None] == ["nmi", "ami"]
