import copy
import pickle

import pytest
import torch
from pytorch_metric_learning import losses, miners

from obdsd import objectives
from obdsd.catalogue import LOSSES
from obdsd.objectives import TripletSampler
from obdsd.objectives.objective import parameter_groups_of
from tests.oracles import slow
from tests.refusing import refused

cases = pytest.mark.parametrize("case", ["case0", "case1"])
Z, LABELS = slow.unit_rows(12, 6, seed=0), torch.arange(6).repeat(2)
BUILT_IN = {
    "multi-similarity": objectives.multi_similarity,
    "margin": lambda: objectives.margin(12),
    "r-margin": lambda: objectives.r_margin(12),
    "proxy-anchor": lambda: objectives.proxy_anchor(12, 6),
    "proxy-nca": lambda: objectives.proxy_nca(12, 6),
    "soft-triple": lambda: objectives.soft_triple(12, 6),
    "nt-xent": objectives.nt_xent,
}


def under_vmap(objective):
    return torch.vmap(lambda z: objective(z, LABELS))(Z[None])


@pytest.mark.parametrize("name", BUILT_IN)
def test_labels_of_any_whole_type_and_a_pickled_objective_give_the_same_loss(name):
    expected = BUILT_IN[name]()(Z, LABELS)
    for kind in (torch.int8, torch.int16, torch.int32):
        assert torch.equal(BUILT_IN[name]()(Z, LABELS.to(kind)), expected)
    assert torch.equal(pickle.loads(pickle.dumps(BUILT_IN[name]()))(Z, LABELS), expected)


@cases
@pytest.mark.parametrize("name", ["ms", "margin", "rmargin"])
def test_value_and_gradients_of_the_oracle(reference, case, name):
    objective = {"ms": objectives.multi_similarity, "margin": objectives.margin, "rmargin": objectives.r_margin}[name](
        **({} if name == "ms" else {"num_classes": 56})
    )
    student = reference[f"{case}/student"].clone().requires_grad_()
    triplets = None if name == "ms" else tuple(reference[f"{case}/triplets"].T)
    loss = objective(student, reference[f"{case}/labels"], indices_tuple=triplets)
    loss.backward()
    expected = reference[f"{case}/{name}_grad"]
    torch.testing.assert_close(loss.detach(), reference[f"{case}/{name}_loss"], rtol=1e-4, atol=0)
    torch.testing.assert_close(student.grad, expected, rtol=1e-4, atol=1e-6 * expected.abs().max().item())
    if name != "ms":
        torch.testing.assert_close(objective.loss.beta.grad, reference[f"{case}/{name}_beta_grad"], rtol=1e-4, atol=1e-8)


def test_own_parameters_come_as_optimiser_groups_with_their_learning_rates():
    assert objectives.multi_similarity().parameter_groups() == []
    model = torch.nn.Linear(6, 6)
    for make, settings in (
        (objectives.margin(12), {"lr": 5e-4, "weight_decay": 0.0}),
        (objectives.r_margin(12), {"lr": 5e-4, "weight_decay": 0.0}),
        (objectives.proxy_anchor(12, 6), {"lr": 1e-2, "weight_decay": 4e-4}),
        (objectives.proxy_nca(12, 6), {"lr": 400.0, "eps": 1.0, "weight_decay": 0.0}),
        (objectives.soft_triple(12, 6), {"lr": 1e-2, "eps": 1e-2, "weight_decay": 4e-4}),
        (objectives.from_pml(losses.SoftTripleLoss(12, 6), lr=0.3), {"lr": 0.3, "weight_decay": 4e-4}),
        (objectives.from_pml(losses.SoftTripleLoss(12, 6)), {"lr": 1e-5, "weight_decay": 4e-4}),
    ):
        optimizer = torch.optim.Adam([{"params": model.parameters()}, *make.parameter_groups()], lr=1e-5, weight_decay=4e-4)
        own = optimizer.param_groups[1]
        assert {key: own[key] for key in settings} == settings
        assert {id(p) for p in own["params"]} == {id(p) for p in make.parameters()}


@pytest.mark.parametrize("name", ["multi-similarity", "margin", "r-margin", "nt-xent"])
@pytest.mark.parametrize("labels", [torch.zeros(12).long(), torch.arange(12)], ids=["one class", "all classes differ"])
def test_a_batch_without_valid_pairs_is_a_differentiable_zero(name, labels):
    z = Z.clone().requires_grad_()
    loss = BUILT_IN[name]()(z, labels)
    loss.backward()
    assert loss == 0
    assert (z.grad == 0).all()


def test_a_single_mined_pair_counts():
    """Anchor 0 alone keeps a positive (cosine 0.6) and a negative (0.8): log(1+e^{-2(0.6-0.5)})/2 + log(1+e^{40(0.8-0.5)})/40."""
    z = torch.tensor([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.8, 0.0, 0.6]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1])
    objective = objectives.multi_similarity()
    pairs = objective.miner(z, labels)
    assert [len(part) for part in pairs] == [1, 1, 1, 1]
    s = z @ z.T
    expected = torch.log(1 + torch.exp(-2 * (s[0, 1] - 0.5))) / 2 + torch.log(1 + torch.exp(40 * (s[0, 2] - 0.5))) / 40
    torch.testing.assert_close(objective(z, labels), expected)
    triplet = (pairs[0], pairs[1], pairs[3])
    torch.testing.assert_close(objective(z, labels, indices_tuple=triplet), expected)


@pytest.mark.parametrize("make", BUILT_IN.values(), ids=BUILT_IN.keys())
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(make, dtype):
    objective = make()
    half = Z.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = copy.deepcopy(objective)(half, LABELS)
    loss.backward()
    assert loss.dtype == torch.float32
    assert half.grad.isfinite().all()
    rounded = torch.nn.functional.normalize(half.detach().float(), dim=1)
    torch.testing.assert_close(loss.detach(), objective(rounded, LABELS).detach(), rtol=2e-2, atol=1e-3)


def test_a_loss_of_ones_own_may_say_how_its_parameters_are_trained():
    class Mine(torch.nn.Linear):
        def parameter_groups(self):
            return [{"params": [self.weight], "lr": 0.5}]

    mine, plain = Mine(2, 2), torch.nn.Linear(2, 2)
    assert parameter_groups_of(mine) == [{"params": [mine.weight], "lr": 0.5}]
    assert parameter_groups_of(plain) == [{"params": [plain.weight, plain.bias]}]


def memory():
    return losses.CrossBatchMemory(losses.ContrastiveLoss(), embedding_size=6, memory_size=24, miner=miners.MultiSimilarityMiner())


def test_cross_batch_memory_works_and_looks_back():
    objective, plain = objectives.from_pml(memory()), memory()
    batches = [slow.unit_rows(12, 6, seed) for seed in range(3)]
    for rows in batches:
        z = rows.clone().requires_grad_()
        loss = objective(z, LABELS)
        loss.backward()
        torch.testing.assert_close(loss.detach(), plain(rows, LABELS))
        assert z.grad.abs().max() > 0
    assert torch.equal(objective.loss.embedding_memory[:12], batches[2])  # 24 places: the third batch overwrote the first
    assert torch.equal(objective.loss.embedding_memory[12:], batches[1])


BAD = [
    *(
        (lambda make=make: make()(Z, LABELS.float()), "labels=torch.float32 must be a tensor of whole numbers")
        for make in BUILT_IN.values()
    ),
    *((lambda make=make: make()(Z, LABELS.tolist()), "labels=list must be a tensor of whole numbers") for make in BUILT_IN.values()),
    *(
        (lambda make=make: make().to("meta")(Z.to("meta"), LABELS), "embeddings: its values cannot be looked at")
        for make in BUILT_IN.values()
    ),
    *((lambda make=make: under_vmap(make()), "embeddings: its values cannot be looked at, as under vmap") for make in BUILT_IN.values()),
    (lambda: under_vmap(objectives.from_pml(losses.NTXentLoss())), "embeddings: its values cannot be looked at, as under vmap"),
    (lambda: objectives.from_pml(losses.NTXentLoss())(Z, LABELS / 2), "labels=torch.float32 must be a tensor of whole numbers"),
    (lambda: objectives.proxy_anchor(12, 6).proxies_of(LABELS / 2), "labels=torch.float32 must be a tensor of whole numbers"),
    (lambda: objectives.multi_similarity()(2 * Z, LABELS), "embeddings=rows off by 1 must be of unit length within 0.001"),
    (lambda: objectives.margin(12)(Z * float("nan"), LABELS), "embeddings=nan has NaN or infinite entries"),
    (lambda: objectives.multi_similarity()(Z, LABELS[:5]), "labels.shape=(5,) must be (12,); give one label a row"),
    (lambda: objectives.margin(5)(Z, LABELS), "labels=0..5 must lie in 0..4; renumber them or raise num_classes"),
    (lambda: objectives.proxy_anchor(5, 6)(Z, LABELS), "labels=0..5 must lie in 0..4"),
    (lambda: objectives.proxy_anchor(12, 9)(Z, LABELS), "embeddings.shape=(12, 6) must be (batch, 9); make the objective for"),
    (lambda: objectives.margin(0), "num_classes=0 must be 1 or more"),
    (lambda: objectives.proxy_anchor(3, 4, alpha=0), "alpha=0 must be positive and finite; try 32"),
    (lambda: objectives.proxy_anchor(3, 4, margin=-1), "margin=-1 must lie in [0, 2], as distances of cosines do; try 0.1"),
    (lambda: objectives.proxy_anchor(3, 0), "num_classes, dim=(3, 0) must be 1 or more"),
    (lambda: objectives.margin(6, sampling="semi-hard"), "sampling='semi-hard' is unknown; use one of random, semihard, softhard"),
    (lambda: TripletSampler("distance")(Z, LABELS, Z[:3], LABELS[:3]), "ref_emb=(3, 6) is another set; 'distance' sampling draws inside"),
    (
        lambda: objectives.from_pml(memory(), miners.BatchHardMiner()),
        "miner=… beside CrossBatchMemory would mine the batch, not the",
    ),
    (lambda: objectives.from_pml(losses.TripletMarginLoss), "loss=TripletMarginLoss is a class; make one of it, TripletMarginLoss()"),
    (lambda: objectives.from_pml(losses.TripletMarginLoss(), miners.BatchHardMiner), "miner=BatchHardMiner is a class"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)


# ---- Losses and miners of pytorch-metric-learning by their names.

SIZES = {"num_classes": 6, "dim": 6, "seed": 3}


@pytest.mark.parametrize(
    ("written", "loss", "miner"),
    [
        ("pml(ContrastiveLoss)", losses.ContrastiveLoss(), None),
        ("pml(TripletMarginLoss(margin=0.3), miner=BatchHardMiner)", losses.TripletMarginLoss(margin=0.3), miners.BatchHardMiner()),
        ("pml(TripletMarginLoss, TripletMarginMiner(margin=0.5))", losses.TripletMarginLoss(), miners.TripletMarginMiner(margin=0.5)),
    ],
)
def test_a_name_stands_for_the_object(written, loss, miner):
    expected = loss(Z, LABELS, None if miner is None else miner(Z, LABELS))
    torch.testing.assert_close(LOSSES.build(written, **SIZES)(Z, LABELS), expected)


def test_sizes_are_filled_in_and_the_seed_draws_the_weights():
    before = torch.get_rng_state()
    first, same, other = (LOSSES.build("pml(ArcFaceLoss)", **{**SIZES, "seed": seed}).loss.W for seed in (3, 3, 4))
    assert first.shape == (6, 6)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


BAD = [
    ("pml", r"loss=pml needs name; write pml\(name=…\)"),
    ("pml(TripletMargin)", r"TripletMargin is not in pytorch-metric-learning's losses; did you mean TripletMarginLoss\?"),
    ("pml(TripletMarginLoss, miner=BatchHard)", r"BatchHard is not in pytorch-metric-learning's miners; did you mean BatchHardMiner\?"),
    ("pml(TripletMarginLoss(margn=1))", r"TripletMarginLoss\(margn=1\) cannot be made \(.*margn.*\); see its arguments there"),
    ("pml(VICRegLoss)", r"^VICRegLoss of pytorch-metric-learning: labels .* not supported"),
]
test_what_cannot_be_made_or_used_is_one_line = refused(BAD, lambda written: LOSSES.build(written, **SIZES)(Z, LABELS), regex=True)
