"""SupCon, Recall@k surrogate, contextual, mean-field, EPSHN and ProxyGML: the authors' numbers, literal definitions, limits."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from pytorch_metric_learning import distances
from pytorch_metric_learning import losses as library

from obdsd import objectives
from obdsd.catalogue import LOSSES
from obdsd.method.matching import listwise
from obdsd.presets import preset
from tests.oracles import losses as literal
from tests.oracles import slow
from tests.refusing import refused

with np.load(Path(__file__).parents[1] / "oracles" / "losses.npz") as file:
    ORACLE = {key: torch.from_numpy(file[key]) for key in file.files}
Z, LABELS = slow.unit_rows(13, 6, seed=4, dtype=torch.float64), torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 4, 0])
CLASSES = 6  # one of them is not in the batch, one has a single row


def of_oracle(regulariser):
    sizes = int(ORACLE["ProxyGML/C"]), 16
    kept = {"proxies": int(ORACLE["ProxyGML/N"]), "kept": float(ORACLE["ProxyGML/r"])}
    made = objectives.proxy_gml(*sizes, **kept, regulariser=regulariser).double()
    made.loss.proxies.data = ORACLE["ProxyGML/proxies"].T.clone()
    return made


PUBLISHED = {  # key → the loss, and what its value and gradient are called
    "SupCon": (lambda: objectives.supcon(temperature=0.1), "value", "grad_z"),
    "RSatK": (lambda: objectives.recall_at_k(itself=True), "value", "grad_z"),
    "Contextual": (objectives.contextual, "value", "grad_z"),
    **{f"EPHN{kind}": (lambda: objectives.epshn("hard"), "value", "grad_z") for kind in ("", "_sparse")},
    **{f"EPSHN{kind}": (objectives.epshn, "value", "grad_z") for kind in ("", "_sparse")},
}


def assert_same(ours, truth):
    torch.testing.assert_close(ours, truth, rtol=1e-7, atol=1e-10)


def value_and_gradients(loss_of, *inputs):
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    loss = loss_of(*leaves)
    return loss.detach(), *torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_authors_numbers(name):
    make, value, gradient = PUBLISHED[name]
    loss, slope = value_and_gradients(lambda z: make()(z, ORACLE[f"{name}/labels"]), ORACLE[f"{name}/z"])
    assert_same(loss, ORACLE[f"{name}/{value}"])
    assert_same(slope, ORACLE[f"{name}/{gradient}"])


def test_the_papers_rank_leaves_the_query_out():
    loss = objectives.recall_at_k()(ORACLE["RSatK/z"], ORACLE["RSatK/labels"])
    assert_same(loss, ORACLE["RSatK/value_query_left_out"])


def test_the_parts_of_the_contextual_loss():
    def of(share):
        return lambda z: objectives.contextual(share=share)(z, ORACLE["Contextual/labels"])

    z, spread = ORACLE["Contextual/z"], 0.1 * ORACLE["Contextual/reg"]
    assert_same(of(0.0)(z) - spread, ORACLE["Contextual/context"])
    assert_same(of(1.0)(z) - spread, ORACLE["Contextual/contrastive"])

    def of_spread(z):
        z = torch.nn.functional.normalize(z, dim=1)
        return 0.1 * ((z @ z.T).mean() - 0.3).square()

    context, *_ = (value_and_gradients(part, z)[1] for part in (of(0.0),))
    assert_same(context - value_and_gradients(of_spread, z)[1], ORACLE["Contextual/grad_context"])


@pytest.mark.parametrize(("regulariser", "part"), [(0.0, "class"), (0.3, "total")])
def test_the_authors_numbers_of_proxy_gml(regulariser, part):
    made, z = of_oracle(regulariser), ORACLE["ProxyGML/z"].clone().requires_grad_()
    loss = made(z, ORACLE["ProxyGML/labels"])
    slope, of_proxies = torch.autograd.grad(loss, [z, made.loss.proxies])
    assert_same(loss.detach(), ORACLE[f"ProxyGML/value_{part}"])
    assert_same(slope, ORACLE[f"ProxyGML/grad_z_{part}"])
    assert_same(of_proxies.T, ORACLE[f"ProxyGML/grad_proxies_{part}"])


def test_every_kind_of_oracle_number_is_read():
    assert {key.partition("/")[0] for key in ORACLE} == {*PUBLISHED, "ProxyGML"}


VECTORS = torch.randn(CLASSES, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
PROXIES = torch.randn(CLASSES * 2, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def mean_field(z, labels, vectors=VECTORS, apart=0.7):
    made = objectives.mean_field(CLASSES, 6, apart=apart).double()
    return torch.func.functional_call(made, {"loss.proxies": vectors}, (z, labels))


def proxy_gml(z, labels, proxies=PROXIES, kept=0.4, regulariser=0.3):
    made = objectives.proxy_gml(CLASSES, 6, proxies=2, kept=kept, regulariser=regulariser).double()
    return torch.func.functional_call(made, {"loss.proxies": proxies}, (z, labels))


DEFINITIONS = {
    "supcon": (objectives.supcon(0.3), lambda z, labels: literal.supcon(z, labels, 0.3), ()),
    "recall-at-k": (objectives.recall_at_k([1, 3, 20]), lambda z, labels: literal.recall_at_k(z, labels, (1, 3, 20)), ()),
    "recall-at-k, itself": (objectives.recall_at_k(itself=True), lambda z, labels: literal.recall_at_k(z, labels, itself=True), ()),
    "mean-field": (mean_field, lambda z, labels, vectors: literal.mean_field(z, labels, vectors, 0.7), (VECTORS,)),
    "epshn": (objectives.epshn(), lambda z, labels: literal.epshn(z, labels, semi_hard=True), ()),
    "ephn": (objectives.epshn("hard", 0.3), lambda z, labels: literal.epshn(z, labels, semi_hard=False, temperature=0.3), ()),
    "proxy-gml": (proxy_gml, lambda z, labels, proxies: literal.proxy_gml(z, labels, proxies, 2, 5, 0.3), (PROXIES,)),
    "proxy-gml, one": (
        lambda z, labels, proxies: proxy_gml(z, labels, proxies, kept=1 / 12, regulariser=0.0),
        lambda z, labels, proxies: literal.proxy_gml(z, labels, proxies, 2, 1, 0.0),
        (PROXIES,),
    ),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_value_and_gradients_by_definition(name):
    """Classes of different sizes, one of a single row."""
    ours, truth, own = DEFINITIONS[name]
    got = value_and_gradients(lambda z, *own: ours(z, LABELS, *own), Z, *own)
    expected = value_and_gradients(lambda z, *own: truth(z, LABELS, *own), Z, *own)
    for one, other in zip(got, expected, strict=True):
        assert_same(one, other)
    assert got[1].abs().max() > 1e-3 or name == "proxy-gml, one"


@pytest.mark.parametrize("settings", [{}, {"neighbours": 6, "slack": 0.2, "share": 0.0}, {"neighbours": 3, "slack": 0.0}])
def test_the_contextual_loss_by_definition(settings):
    names = {"neighbours": "k", "slack": "slack", "share": "share"}
    for labels in (LABELS, torch.zeros_like(LABELS)):
        expected = literal.contextual(Z, labels, **{names[name]: value for name, value in settings.items()})
        assert_same(objectives.contextual(**settings)(Z, labels), expected)


def test_with_a_batch_of_neighbours_nothing_is_outside():
    assert_same(objectives.contextual(neighbours=13)(Z, LABELS), literal.contextual(Z, LABELS, 13))


SMOOTH = {name: loss for name, (loss, _, own) in DEFINITIONS.items() if not own} | {
    "mean-field": lambda z, labels: mean_field(z, labels),
    "proxy-gml": lambda z, labels: proxy_gml(z, labels),
    "contextual": objectives.contextual(),
}


@pytest.mark.parametrize("name", [name for name in SMOOTH if name != "contextual"])  # whose gradient is no derivative
def test_gradients_are_those_of_finite_differences(name):
    z = torch.randn(13, 6, generator=torch.Generator().manual_seed(8), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: SMOOTH[name](torch.nn.functional.normalize(z, dim=1), LABELS), z, atol=1e-6)


@pytest.mark.parametrize("name", SMOOTH)
def test_the_order_of_the_rows_does_not_matter(name):
    order = torch.randperm(13, generator=torch.Generator().manual_seed(3))
    value, slope = value_and_gradients(lambda z: SMOOTH[name](z, LABELS), Z)
    other, permuted = value_and_gradients(lambda z: SMOOTH[name](z, LABELS[order]), Z[order])
    assert_same(other, value)
    assert_same(permuted, slope[order])


def test_supcon_is_the_cross_entropy_to_the_class_mates():
    same = (LABELS[:, None] == LABELS).double().fill_diagonal_(0)
    target = same / same.sum(dim=1, keepdim=True).clamp(min=1)
    assert_same(objectives.supcon(0.2)(Z, LABELS), listwise(Z @ Z.T / 0.2, target))
    default = library.SupConLoss(0.2)(Z, LABELS)  # leaves items without class-mates out of the mean
    assert_same(objectives.supcon(0.2)(Z, LABELS) * 13 / 12, default)


def test_the_tuned_multi_similarity_mines_nothing():
    """It is the library's, without a miner, in value and gradient."""
    labels, rows = torch.arange(6).repeat(2), Z[:12]
    tuned = LOSSES.build(preset("ms-tuned", "x.npz").loss, num_classes=6, dim=6, seed=0)
    plain = library.MultiSimilarityLoss(
        alpha=0.01, beta=50.6, base=0.56, distance=distances.DotProductSimilarity(normalize_embeddings=False)
    )
    for ours, theirs in zip(*(value_and_gradients(lambda z, of=of: of(z, labels), rows) for of in (tuned, plain)), strict=True):
        assert_same(ours, theirs)


def test_a_perfect_order_has_the_best_recall():
    z = torch.eye(4, dtype=torch.float64).repeat_interleave(2, dim=0)
    assert float(objectives.recall_at_k([1], rank_temperature=0.01)(z, torch.arange(4).repeat_interleave(2))) == pytest.approx(0.5)
    assert float(objectives.recall_at_k([2], rank_temperature=0.01)(z, torch.arange(4).repeat_interleave(2))) == pytest.approx(0)


@pytest.mark.parametrize("make", [objectives.recall_at_k, objectives.epshn, objectives.supcon])
@pytest.mark.parametrize("rows", [2, 12])
def test_without_pairs_it_is_a_differentiable_zero(make, rows):
    z = slow.unit_rows(rows, 6, seed=0).requires_grad_()
    loss = make()(z, torch.arange(rows))
    loss.backward()
    assert loss == 0
    assert (z.grad == 0).all()


def test_copies_of_one_image_are_no_positives():
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.8, 0.6], [0.6, 0.8]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 1])
    by_hand = [math.log(1 + math.exp((n - p) / 0.1)) for p, n in ((0.8, 0.6), (0.8, 0.6))]  # anchor 2's negative is nearer than 0.8
    assert float(objectives.epshn()(z, labels)) == pytest.approx(sum(by_hand) / 2)


def test_class_vectors_and_proxies_start_as_published_and_from_the_seed_alone():
    for make, spread in ((objectives.mean_field, 1.0), (objectives.proxy_gml, 1 / math.sqrt(3 * 100 * 12))):
        before = torch.get_rng_state()
        first, same, other = (make(100, 64, seed=seed).loss.proxies for seed in (0, 0, 1))
        assert torch.equal(first, same)
        assert not torch.equal(first, other)
        assert torch.equal(torch.get_rng_state(), before)
        assert first.std().item() == pytest.approx(spread, rel=0.03)
    assert [group["lr"] for group in objectives.mean_field(4, 3).parameter_groups()] == [0.2]
    assert [(group["lr"], group["eps"]) for group in objectives.proxy_gml(4, 3).parameter_groups()] == [(0.03, 0.01)]
    assert objectives.proxy_gml(100, 3).loss.kept == 60  # of 1,200


def test_proxies_that_are_handed_out():
    made = objectives.proxy_gml(5, 3, proxies=4)
    torch.testing.assert_close(made.proxies_of(torch.tensor([3])), torch.nn.functional.normalize(made.loss.proxies.detach()[12:16], dim=1))
    assert objectives.mean_field(5, 3).proxies_of(torch.tensor([4, 1, 4])).shape == (2, 3)


BAD = [
    (lambda: objectives.supcon(0.0), "temperature=0.0 must be a positive finite number"),
    (lambda: objectives.recall_at_k([]), "ks=[] must be depths of 1 or more; try [1, 2, 4, 8, 16]"),
    (lambda: objectives.recall_at_k([0, 1]), "ks=[0, 1] must be depths of 1 or more"),
    (lambda: objectives.recall_at_k(temperature=0), "temperature=0 must be a positive finite number"),
    (lambda: objectives.recall_at_k(rank_temperature=-1), "rank_temperature=-1 must be a positive finite number"),
    (lambda: objectives.contextual(neighbours=1), "neighbours=1 must be 2 or more, an item and another; try 4"),
    (lambda: objectives.contextual(slack=-0.1), "slack=-0.1 must be 0 or more and finite; try 0.05"),
    (lambda: objectives.contextual(share=1.5), "share=1.5 must lie in [0, 1]; try 0.2"),
    (lambda: objectives.contextual(share="0.2"), "share='0.2' is a text; pass a number, without quotes"),
    (lambda: objectives.contextual(16)(Z, LABELS), "embeddings.shape=(13, 6) has fewer rows than neighbours=16; ask for fewer"),
    (lambda: objectives.mean_field(0, 6), "num_classes, dim=(0, 6) must be 1 or more"),
    (lambda: objectives.mean_field(6, 6, apart=-1), "apart=-1 must be 0 or more and finite; try 0.02, 0.3 and 0, as published"),
    (lambda: objectives.mean_field(4, 6)(Z, LABELS), "labels=0..4 must lie in 0..3; renumber them or raise num_classes"),
    (lambda: objectives.epshn("semihard"), "negatives='semihard' is unknown; use 'semi-hard' or 'hard'"),
    (lambda: objectives.epshn(temperature=0), "temperature=0 must be a positive finite number"),
    (lambda: objectives.proxy_gml(6, 6, proxies=0), "proxies=0 must be 1 or more; try 12"),
    (lambda: objectives.proxy_gml(6, 6, kept=20), "kept=20 must be a share above 0, 1 at most; try 0.05"),
    (lambda: objectives.proxy_gml(6, 6, regulariser=-1), "regulariser=-1 must be 0 or more and finite; try 0.3"),
    *(
        (lambda make=make: make(2 * Z, LABELS), "embeddings=rows off by 1 must be of unit length within 0.001")
        for make in (objectives.supcon(), objectives.recall_at_k(), objectives.contextual(), objectives.epshn(), mean_field, proxy_gml)
    ),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)
