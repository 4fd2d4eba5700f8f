"""The relational head: a literal version, what no gradient reaches, how it begins, and a saved model that gives its rows."""

import pytest
import torch

from obdsd.errors import InputError
from obdsd.models import Embedder
from obdsd.models.relational import RelationalHead
from tests.models.oracle import images


def literal(head, f):
    """One item's row, with loops."""
    G, width, length = head.branches, len(f) // head.branches, head.join.out_features
    chunks = [f[g * width : (g + 1) * width] for g in range(G)]
    n = [head.node.weight[g] @ chunks[g] + head.node.bias[g] for g in range(G)]
    n = [each / each.square().sum().sqrt() for each in n]
    A, B = ([part.weight[g] @ chunks[g] + part.bias[g] for g in range(G)] for part in (head.source, head.sink))
    w, w0 = head.score.weight[0], head.score.bias[0]
    s = [[max(float((w @ (A[i] - B[j]) + w0).detach()), 0.0) for j in range(G)] for i in range(G)]
    rows = []
    for j in range(G):
        total = max(sum(s[i][j] for i in range(G)), 1e-12)
        related = sum((s[i][j] / total * n[i] for i in range(G)), torch.zeros(length, dtype=f.dtype))
        rows.append(head.join.weight @ torch.cat([n[j], related]) + head.join.bias)
    return torch.cat(rows)


def head_of(branches=4, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = RelationalHead(12, 8, branches).double()
        torch.nn.init.normal_(head.join.weight)
        for part in (head.node, head.source, head.sink, head.score, head.join):
            torch.nn.init.normal_(part.bias, std=0.3)
    return head


def features(count=7):
    return torch.randn(count, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("branches", [1, 2, 4])
def test_rows_by_their_literal_definition(branches):
    head, f = head_of(branches), features()
    torch.testing.assert_close(head(f), torch.stack([literal(head, row) for row in f]))


def test_outputs_to_which_nothing_is_related_have_no_neighbours():
    head, f = head_of(), features()
    torch.nn.init.constant_(head.score.bias, -100.0)
    assert (head.relations(f) == 0).all()
    torch.testing.assert_close(head(f), torch.stack([literal(head, row) for row in f]))
    torch.nn.init.constant_(head.score.bias, 100.0)
    torch.testing.assert_close(head.relations(f).sum(dim=1), torch.ones(7, 4, dtype=torch.float64))


def test_features_learn_of_the_nodes_and_not_of_the_relations():
    head, f = head_of(), features().requires_grad_()
    assert not torch.autograd.grad(head.relations(f).square().sum(), f, allow_unused=True)[0]
    fixed = head.relations(f).detach()
    towards = torch.randn(7, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    nodes = head.nodes(f)
    direct = head.join(torch.cat([nodes, fixed.mT @ nodes], dim=2)).flatten(1)
    for one, other in zip(*(torch.autograd.grad((rows * towards).sum(), [f]) for rows in (head(f), direct)), strict=True):
        torch.testing.assert_close(one, other)


def test_it_begins_as_its_nodes():
    """J is the identity of the node; other maps are Kaiming-normal over the outputs, without bias, by the model's seed alone."""
    model, same, other = (Embedder("features", features=64, dim=32, head="relational", seed=seed) for seed in (3, 3, 4))
    f = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(f), torch.nn.functional.normalize(model.head.nodes(f).flatten(1), dim=1))
    assert model.architecture.branches == 4
    for part in (model.head.node, model.head.source, model.head.sink):
        assert float(part.weight.detach().std()) == pytest.approx((2 / 8) ** 0.5, rel=0.1)
        assert not part.bias.any()
    assert torch.equal(model.head.node.weight, same.head.node.weight)
    assert not torch.equal(model.head.node.weight, other.head.node.weight)


def test_a_saved_model_gives_the_same_rows_and_its_head_can_be_joined(tmp_path):
    model, x = Embedder("tiny-conv", dim=8, head="relational", branches=2, unit_features=True).eval(), images(3, 32)
    model.save(tmp_path)
    again = Embedder.load(tmp_path)
    assert (again.architecture, again.digest()) == (model.architecture, model.digest())
    assert torch.equal(again(x), model(x))
    assert torch.equal(model.headless().joined(model.head_alone().eval())(x), model(x))
    assert model.headless().architecture.branches is None


def test_half_precision_has_relations_too():
    model = Embedder("features", features=12, dim=8, head="relational").eval()
    f = features().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered = model(f)
    assert lowered.dtype == torch.float32
    torch.testing.assert_close(lowered, model(f), rtol=0, atol=0.05)
    assert model.half()(f.half()).isfinite().all()


def test_features_that_cannot_be_cut_are_one_line():
    with pytest.raises(InputError, match=r"^branches=4 must divide the 10 features; use another number of branches$"):
        Embedder("features", features=10, dim=8, head="relational")
