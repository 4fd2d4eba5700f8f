"""S2SD against its parts put together by hand, its limits, and where its gradients go."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from pytorch_metric_learning import losses, miners
from torch.nn.functional import normalize

from obdsd import BatchDiffusion, PairwiseTargets, SelfDistillation, objectives
from obdsd.objectives import S2SD
from tests.oracles import slow
from tests.refusing import refused

BATCH, FEATURES, DIM, HEADS, CLASSES = 8, 5, 4, (6, 7), 3
LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])


def multi_similarity(dim):
    return objectives.multi_similarity()


def margin(dim):
    return objectives.margin(CLASSES)


def proxies(dim):
    return objectives.proxy_anchor(CLASSES, dim)


pairs_and_triplets = pytest.mark.parametrize("objective", [multi_similarity, margin], ids=["multi-similarity", "margin"])


def make(objective=multi_similarity, **options) -> S2SD:
    return S2SD(objective, FEATURES, DIM, **{"heads": HEADS, **options}).double()


def batch(seed=0):
    """A feature map and embeddings of it, which here have nothing to do with each other."""
    feature_map = torch.randn(BATCH, FEATURES, 2, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return feature_map, slow.unit_rows(BATCH, DIM, seed + 100, torch.float64)


def by_hand(head, features):
    return normalize(torch.relu(features @ head.first.weight.T + head.first.bias) @ head.second.weight.T + head.second.bias, dim=1)


@pairs_and_triplets
@pytest.mark.parametrize(("omega", "temperature"), [(0.0, 1.0), (0.4, 1.0), (0.4, 0.3)])
@pytest.mark.parametrize("feature_weight", [0.0, 7.0])
@pytest.mark.parametrize("pooling", ["avg", "avg+max"])
def test_the_whole_loss_is_that_of_its_parts(objective, omega, temperature, feature_weight, pooling):
    """Base losses, samplers and distillation, each tested by itself, put together by hand; so is the gradient of the losses."""
    teach = SelfDistillation(1.0, temperature, BatchDiffusion(omega) if omega else PairwiseTargets(), ramp="constant")
    s2sd = make(objective, distill=replace(teach, weight=50.0), feature_weight=feature_weight, feature_from=0, pooling=pooling, seed=4)
    for number, p in enumerate(p for loss in (s2sd.base, *s2sd.losses) for p in loss.parameters()):  # another β for each class and loss
        p.data = torch.tensor([0.9, 1.1, 1.3], dtype=torch.float64) + 0.05 * number
    parts = copy.deepcopy(s2sd)  # its samplers draw the same
    for step in range(2):
        feature_map, z = (x.requires_grad_() for x in batch(step))
        features = feature_map.mean((2, 3)) + (feature_map.amax((2, 3)) if pooling == "avg+max" else 0)
        rows = [by_hand(head, features) for head in parts.heads]
        of_heads = sum(loss(row, LABELS) for row, loss in zip(rows, parts.losses, strict=True)) / 2
        base = (of_heads + parts.base(z, LABELS)) / 2
        taught = sum(50 * teach(z, row, 1.0) for row in rows) / 2 + feature_weight * teach(z, normalize(features, dim=1), 1.0)
        found = s2sd.eval().parts(feature_map, z, LABELS)
        torch.testing.assert_close(found, (base, taught), rtol=1e-9, atol=0)
        torch.testing.assert_close(s2sd.train()(feature_map, z, LABELS), base + taught, rtol=1e-9, atol=0)
        gradients = (torch.autograd.grad(loss, [feature_map, *of.parameters()]) for loss, of in ((found[0], s2sd), (base, parts)))
        torch.testing.assert_close(*gradients)


# ---- Settings.


def test_the_settings_are_the_published_ones():
    s2sd = S2SD(multi_similarity, FEATURES, DIM)
    assert [tuple(p.shape) for p in s2sd.head_parameters()] == [
        shape for t in (512, 1024, 1536, 2048) for shape in ((t, FEATURES), (t,), (t, t), (t,))
    ]
    assert s2sd.distill == SelfDistillation(50.0, temperature=1.0, targets=PairwiseTargets(), ramp="constant")
    assert (s2sd.pooling, s2sd.distill_features.weight, s2sd.feature_from) == ("avg+max", 0.0, 1000)


def test_a_ramp_is_for_the_heads_alone():
    def taught(progress, feature_weight):
        s2sd = make(distill=SelfDistillation(50.0), feature_weight=feature_weight, feature_from=0)
        return s2sd.parts(*batch(), LABELS, progress=progress)[1]

    torch.testing.assert_close(taught(0.5, 0.0), taught(1.0, 0.0) / 2)
    assert taught(0.0, 0.0) == 0
    torch.testing.assert_close(taught(0.5, 7.0) - taught(0.5, 0.0), taught(0.0, 7.0))


# ---- Where the gradients go.


@pairs_and_triplets
def test_the_distillation_reaches_the_embeddings_only(objective):
    s2sd, (feature_map, z) = make(objective, feature_weight=7.0, feature_from=0), (x.requires_grad_() for x in batch())
    s2sd.parts(feature_map, z, LABELS)[1].backward()
    assert z.grad.abs().max() > 0
    assert all(x.grad is None for x in (feature_map, *s2sd.parameters()))


# ---- The features' turn.


def features_teach(s2sd) -> bool:
    silent = copy.deepcopy(s2sd)
    silent.distill_features = SelfDistillation(0.0)
    with torch.no_grad():
        return bool(s2sd(*batch(), LABELS) != silent(*batch(), LABELS))


@pytest.mark.parametrize("feature_from", [0, 1, 3])
def test_features_begin_to_teach_after_so_many_training_calls(feature_from):
    s2sd = make(feature_weight=7.0, feature_from=feature_from)
    assert [features_teach(s2sd) for _ in range(5)] == [step >= feature_from for step in range(5)]
    assert not any(features_teach(make(feature_from=0)) for _ in range(2))  # no weight, no term


def test_looking_does_not_count_as_training():
    s2sd = make(feature_weight=7.0, feature_from=2).eval()
    assert [features_teach(s2sd) for _ in range(4)] == [False] * 4
    assert [features_teach(s2sd.train()) for _ in range(3)] == [False, False, True]
    assert features_teach(s2sd.eval())


@pairs_and_triplets
def test_a_training_goes_on_from_the_state_dict_as_if_never_interrupted(objective):
    def train(s2sd, steps):
        optimizer = torch.optim.SGD([{"params": s2sd.head_parameters()}, *s2sd.parameter_groups()], lr=0.01)
        values = []
        for step in steps:
            loss = s2sd(*batch(step), LABELS)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            values.append(loss.item())
        return values

    options = {"feature_weight": 7.0, "feature_from": 4}
    whole = train(make(objective, **options), range(6))
    first, second = make(objective, **options), make(objective, seed=9, **options)
    assert train(first, range(3)) == whole[:3]
    second.load_state_dict(first.state_dict())
    assert train(second, range(3, 6)) == whole[3:]


# ---- Every head its own loss.


@pytest.mark.parametrize(("objective", "lr"), [(margin, 5e-4), (proxies, 1e-2)], ids=["margin", "proxies"])
def test_every_parameter_is_in_one_group_and_every_loss_has_its_own(objective, lr):
    s2sd = make(objective)
    groups = s2sd.parameter_groups()
    assert [group["lr"] for group in groups] == [lr] * 3
    assert objective is margin or [loss.loss.proxies.shape[1] for loss in (s2sd.base, *s2sd.losses)] == [DIM, *HEADS]
    of_losses = [id(p) for group in groups for p in group["params"]]
    assert of_losses == [id(p) for loss in (s2sd.base, *s2sd.losses) for p in loss.parameters()]
    everything = {*of_losses, *(id(p) for p in s2sd.head_parameters())}
    assert len(everything) == len(of_losses) + len(s2sd.head_parameters()) == len(list(s2sd.parameters()))
    assert make().parameter_groups() == []


ANY = {
    "multi-similarity": multi_similarity,
    "r-margin": lambda d: objectives.r_margin(CLASSES),
    "proxy-anchor": proxies,
    "proxy-nca": lambda d: objectives.proxy_nca(CLASSES, d),
    "soft-triple": lambda d: objectives.soft_triple(CLASSES, d),
    "nt-xent": lambda d: objectives.nt_xent(),
    "from_pml": lambda d: objectives.from_pml(losses.TripletMarginLoss(margin=1.0), miners.BatchHardMiner()),
    "pml's own": lambda d: losses.ContrastiveLoss(),
    "pml's own with parameters": lambda d: losses.ArcFaceLoss(CLASSES, d),
    "memory": lambda d: losses.CrossBatchMemory(losses.ContrastiveLoss(), d, memory_size=16),
}


@pytest.mark.parametrize("objective", ANY.values(), ids=ANY.keys())
def test_any_base_loss_trains(objective):
    """A linear model with S2SD around it, on rows without classes: the losses come down, and everything moves."""
    torch.manual_seed(0)
    model, x = torch.nn.Linear(FEATURES, DIM), torch.randn(BATCH, FEATURES)
    distill = SelfDistillation(1.0, ramp="constant")
    s2sd = S2SD(objective, FEATURES, DIM, heads=(16, 32), distill=distill, feature_weight=1.0, feature_from=5)
    optimizer = torch.optim.Adam([{"params": [*model.parameters(), *s2sd.head_parameters()]}, *s2sd.parameter_groups()], lr=0.03)
    before, values = copy.deepcopy(s2sd), []
    for _ in range(20):
        base, taught = s2sd.parts(x, normalize(model(x), dim=1), LABELS)
        optimizer.zero_grad()
        (base + taught).backward()
        optimizer.step()
        values.append(base.item())
    assert sum(values[-3:]) < 0.7 * sum(values[:3])
    assert not any(torch.equal(old, new) for old, new in zip(before.parameters(), s2sd.parameters(), strict=True))


# ---- What the heads read, and from where they start.


def test_maps_tokens_and_rows_are_pooled_to_the_same():
    feature_map, _ = batch()
    tokens = torch.cat([torch.full((BATCH, 2, FEATURES), 9.0).double(), feature_map.flatten(2).mT], dim=1)  # two that are no patches
    for pooling in ("avg", "avg+max"):
        s2sd = make(pooling=pooling, prefix_tokens=2).eval()
        rows = s2sd.pool(feature_map)
        torch.testing.assert_close(s2sd.pool(tokens), rows)
        assert torch.equal(s2sd.pool(rows), rows)


def test_heads_come_from_the_seed_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, same, other = ([p.detach() for p in make(seed=seed).head_parameters()] for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert torch.equal(torch.get_rng_state(), before)
    twins = make(heads=(6, 6)).heads
    assert not torch.equal(twins[0].first.weight, twins[1].first.weight)


def test_heads_start_as_torch_starts_its_layers():
    head = S2SD(multi_similarity, 64, DIM, heads=(256,)).heads[0]
    for layer, inputs in ((head.first, 64), (head.second, 256)):
        bound = inputs**-0.5
        for p in (layer.weight, layer.bias):
            assert 0.95 * bound < p.abs().max() <= bound
        assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [True, False])
def test_half_precision(dtype, autocast):
    s2sd = make(feature_weight=7.0, feature_from=0).float()
    feature_map, z = (x.to(dtype).requires_grad_() for x in batch())
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = s2sd(feature_map, z, LABELS)
    loss.backward()
    assert loss.dtype == torch.float32
    assert feature_map.grad.isfinite().all()
    assert z.grad.isfinite().all()
    exact = s2sd.double()(feature_map.detach().double(), normalize(z.detach().double(), dim=1), LABELS)
    torch.testing.assert_close(loss.detach().double(), exact.detach(), rtol=3e-2, atol=0)


SHARED = objectives.multi_similarity()
MAP, Z = batch()
BAD = [
    (lambda: make(heads=()), "heads=() must be widths of 1 or more; try (512, 1024, 1536, 2048), or (2048,) for one"),
    (lambda: make(heads=2048), "heads=2048 must be widths of 1 or more"),
    (lambda: make(heads=(512, 0)), "heads=(512, 0) must be widths of 1 or more"),
    (lambda: S2SD(multi_similarity, 0, 4), "feature_dim, dim=(0, 4) must be 1 or more; pass the model's"),
    (lambda: make(pooling="max"), "pooling='max' is unknown; use 'avg' or 'avg+max'"),
    (lambda: make(feature_weight=-1.0), "feature_weight=-1.0 must be 0 or more and finite; use 0 to switch it off"),
    (lambda: make(feature_weight=float("nan")), "feature_weight=nan must be 0 or more and finite"),
    (lambda: make(feature_from=-1), "feature_from=-1 must be 0 or more; use 0 to begin at once"),
    (lambda: make(prefix_tokens=-1), "prefix_tokens=-1 must be 0 or more; use 1 for a class token alone"),
    (lambda: make(lambda d: SHARED), "gives the same loss twice; make a new one at each call"),
    (lambda: make()(MAP[:, :3], Z, LABELS), "feature_map.shape=(8, 3, 2, 3) must have 5 features; make S2SD for the backbone's width"),
    (lambda: make()(MAP.flatten(), Z, LABELS), "feature_map.shape=(240,) must be (batch, features), (batch, tokens, features) or"),
    (lambda: make()(MAP, Z[:, :3], LABELS), "embeddings.shape=(8, 3) must be (8, 4); give one row a sample of the feature map"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)
