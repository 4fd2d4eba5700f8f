"""S2SD against a slow computation of the whole loss, its limits, and where its gradients go."""

import copy
import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses, miners

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


def spread_boundaries(s2sd):
    """Another β for each class of each loss."""
    for number, loss in enumerate((s2sd.base, *s2sd.losses)):
        loss.loss.beta.data = torch.tensor([0.9, 1.1, 1.3], dtype=torch.float64) + 0.05 * number


# ---- The slow truth: numpy, loops, the definitions of method and losses.


def slow_pool(feature_map, pooling):
    rows = np.zeros(feature_map.shape[:2])
    for i, j in np.ndindex(*rows.shape):
        places = [feature_map[i, j, y, x] for y in range(feature_map.shape[2]) for x in range(feature_map.shape[3])]
        rows[i, j] = sum(places) / len(places) + (max(places) if pooling == "avg+max" else 0.0)
    return rows


def unit(rows):
    return np.array([row / math.sqrt(sum(x * x for x in row)) for row in rows])


def slow_head(head, features):
    W1, b1, W2, b2 = (p.detach().numpy() for p in (head.first.weight, head.first.bias, head.second.weight, head.second.bias))
    return unit([W2 @ np.maximum(W1 @ row + b1, 0.0) + b2 for row in features])


def slow_multi_similarity(Z, loss, step):
    D, y, terms = Z @ Z.T, LABELS.tolist(), []
    for a in range(len(y)):
        P = [D[a, i] for i in range(len(y)) if i != a and y[i] == y[a]]
        N = [D[a, i] for i in range(len(y)) if y[i] != y[a]]
        hard_P, hard_N = [s for s in P if s - 0.1 < max(N)], [s for s in N if s + 0.1 > min(P)]
        if hard_P or hard_N:
            pull = math.log(1 + sum(math.exp(-2 * (s - 0.5)) for s in hard_P)) / 2
            terms.append(pull + math.log(1 + sum(math.exp(40 * (s - 0.5)) for s in hard_N)) / 40)
    return sum(terms) / len(terms)


def slow_margin(Z, loss, step):
    """On the triplets that the sampler, which is tested by itself, draws at this step."""
    sampler = copy.deepcopy(loss.miner)
    sampler.step = step
    terms, beta = [], loss.loss.beta.tolist()
    for a, p, n in zip(*(part.tolist() for part in sampler(torch.from_numpy(Z), LABELS)), strict=True):
        boundary = beta[LABELS[a]]
        d_ap, d_an = (math.sqrt(sum((x - y) ** 2 for x, y in zip(Z[a], Z[i], strict=True))) for i in (p, n))
        terms.append(max(0.0, d_ap - boundary + 0.2) + max(0.0, boundary - d_an + 0.2))
    return sum(terms) / sum(term > 0 for term in terms)


def slow_kl(student, teacher, temperature, omega):
    D = torch.from_numpy(teacher @ teacher.T)
    A = slow.walk(D, slow.symmetric_transition(D), omega).numpy() if omega else D.numpy()
    total = 0.0
    for target, ours in zip(A / temperature, student @ student.T / temperature, strict=True):
        p, q = np.exp(target) / np.exp(target).sum(), np.exp(ours) / np.exp(ours).sum()
        total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    return total / len(student)


@pytest.mark.parametrize(("objective", "slow_loss"), [(multi_similarity, slow_multi_similarity), (margin, slow_margin)])
@pytest.mark.parametrize(("omega", "temperature"), [(0.0, 1.0), (0.4, 1.0), (0.4, 0.3)])
@pytest.mark.parametrize("feature_weight", [0.0, 7.0])
@pytest.mark.parametrize("pooling", ["avg", "avg+max"])
def test_the_whole_loss_by_loops(objective, slow_loss, omega, temperature, feature_weight, pooling):
    targets = BatchDiffusion(omega) if omega else PairwiseTargets()
    distill = SelfDistillation(50.0, temperature, targets, ramp="constant")
    s2sd = make(objective, distill=distill, feature_weight=feature_weight, feature_from=0, pooling=pooling, seed=4)
    if objective is margin:
        spread_boundaries(s2sd)
    for step in range(2):
        feature_map, z = batch(step)
        Z, features = z.numpy(), slow_pool(feature_map.numpy(), pooling)
        rows = [slow_head(head, features) for head in s2sd.heads]
        of_heads = sum(slow_loss(row, loss, step) for row, loss in zip(rows, s2sd.losses, strict=True)) / 2
        base = (of_heads + slow_loss(Z, s2sd.base, step)) / 2
        taught = temperature**2 * 50 * sum(slow_kl(Z, row, temperature, omega) for row in rows) / 2
        taught += temperature**2 * feature_weight * slow_kl(Z, unit(features), temperature, omega)
        before = s2sd.eval().parts(feature_map, z, LABELS)
        assert [part.item() for part in before] == pytest.approx([base, taught], rel=1e-9)
        assert s2sd.train()(feature_map, z, LABELS).item() == pytest.approx(base + taught, rel=1e-9)


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


def gradients(s2sd, part):
    """Of one part with respect to embeddings, feature map, and all parameters."""
    feature_map, z = (x.requires_grad_() for x in batch())
    s2sd.parts(feature_map, z, LABELS)[part].backward()
    return z.grad, feature_map.grad, {name: p.grad for name, p in s2sd.named_parameters()}


@pairs_and_triplets
def test_the_distillation_reaches_the_embeddings_only(objective):
    of_embeddings, of_map, of_parameters = gradients(make(objective, feature_weight=7.0, feature_from=0), part=1)
    assert of_embeddings.abs().max() > 0
    assert of_map is None
    assert all(gradient is None for gradient in of_parameters.values())


def test_the_losses_reach_map_heads_and_their_own_boundaries():
    s2sd = make(margin)
    plain = copy.deepcopy(s2sd)
    _, of_map, of_parameters = gradients(s2sd, part=0)
    assert all(gradient.abs().max() > 0 for gradient in of_parameters.values())
    feature_map = batch()[0].requires_grad_()
    features = plain.pool(feature_map)
    total = sum(loss(head(features), LABELS) for head, loss in zip(plain.heads, plain.losses, strict=True)) / 4
    (expected,) = torch.autograd.grad(total, feature_map)
    torch.testing.assert_close(of_map, expected)


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
        base, taught = s2sd.parts(x, torch.nn.functional.normalize(model(x), dim=1), LABELS)
        optimizer.zero_grad()
        (base + taught).backward()
        optimizer.step()
        values.append(base.item())
    assert sum(values[-3:]) < 0.7 * sum(values[:3])
    assert not any(torch.equal(old, new) for old, new in zip(before.parameters(), s2sd.parameters(), strict=True))


# ---- What the heads read, and from where they start.


def test_maps_tokens_and_rows_are_pooled_to_the_same():
    feature_map, z = batch()
    tokens = torch.cat([torch.full((BATCH, 2, FEATURES), 9.0).double(), feature_map.flatten(2).mT], dim=1)  # two that are no patches
    for pooling in ("avg", "avg+max"):
        s2sd = make(pooling=pooling, prefix_tokens=2).eval()
        rows = s2sd.pool(feature_map)
        torch.testing.assert_close(s2sd.pool(tokens), rows)
        assert torch.equal(s2sd.pool(rows), rows)
        torch.testing.assert_close(s2sd(tokens, z, LABELS), s2sd(feature_map, z, LABELS))
        torch.testing.assert_close(s2sd(rows, z, LABELS), s2sd(feature_map, z, LABELS))


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
    exact = s2sd.double()(feature_map.detach().double(), torch.nn.functional.normalize(z.detach().double(), dim=1), LABELS)
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
    (lambda: make(distill=SelfDistillation(-1.0)), "weight=-1.0 must be 0 or more and finite"),
    (lambda: make(lambda d: SHARED), "gives the same loss twice; make a new one at each call"),
    (lambda: make()(MAP[:, :3], Z, LABELS), "feature_map.shape=(8, 3, 2, 3) must have 5 features; make S2SD for the backbone's width"),
    (lambda: make()(MAP.flatten(), Z, LABELS), "feature_map.shape=(240,) must be (batch, features), (batch, tokens, features) or"),
    (lambda: make()(MAP, Z[:, :3], LABELS), "embeddings.shape=(8, 3) must be (8, 4); give one row a sample of the feature map"),
    (lambda: make()(MAP, Z[:6], LABELS[:6]), "embeddings.shape=(6, 4) must be (8, 4)"),
    (lambda: make()(MAP, 2 * Z, LABELS), "must be of unit length"),
    (lambda: make()(MAP, Z, LABELS, progress=2.0), "progress=2.0 must lie in [0, 1]"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)
