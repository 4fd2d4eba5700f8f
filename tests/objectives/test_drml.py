"""DRML: the authors' numbers, the loss by its literal definition, which rows teach which branch, and gradients."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from obdsd import objectives
from obdsd.models.relational import RelationalHead
from obdsd.objectives.drml import Branches
from tests.oracles import slow

with np.load(Path(__file__).parents[1] / "oracles" / "drml.npz") as file:
    ORACLE = {key.removeprefix("DRML/"): torch.from_numpy(file[key]) for key in file.files}
CALLED = {"node": "node", "source": "Aedge", "sink": "Bedge"}
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 3, 0])


def published(kind):
    """Parameters or gradients of the oracle, under our names: those of the head, and of the decoders."""

    def of_chunks(name, part):
        return torch.stack([ORACLE[f"{kind}/{name}_{branch}.{part}"] for branch in range(4)])

    head = {f"{ours}.{part}": of_chunks(theirs, part) for ours, theirs in CALLED.items() for part in ("weight", "bias")}
    for ours, theirs in (("score", "score_func"), ("join", "integrator")):
        head |= {f"{ours}.{part}": ORACLE[f"{kind}/{theirs}.{part}"] for part in ("weight", "bias")}
    return head, {part: of_chunks("decoder", part) for part in ("weight", "bias")}


def test_the_authors_numbers():
    head, loss = RelationalHead(24, 20, 4).double(), Branches(lambda dim: torch.nn.Identity(), 24, 20, 4, 10.0, 0).double()
    of_head, of_decoders = published("p")
    head.load_state_dict(of_head)
    loss.decode.load_state_dict(of_decoders)
    f = ORACLE["features"].clone().requires_grad_()
    embedding, nodes = head(f), head.nodes(f)
    errors = loss.errors(head.chunks(f), nodes)
    torch.testing.assert_close(embedding, ORACLE["embedding"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(errors, ORACLE["reconstruction"], rtol=1e-9, atol=1e-12)
    branch = errors.argmin(dim=1)
    assert branch.tolist() == ORACLE["branch"].tolist()
    of_branch = ORACLE["R_branch"][branch, torch.arange(14)]
    value = errors.mean() + (ORACLE["R_final"] * embedding).sum() + (of_branch * nodes[torch.arange(14), branch]).sum()
    torch.testing.assert_close(value, ORACLE["value"], rtol=1e-9, atol=1e-12)
    value.backward()
    torch.testing.assert_close(f.grad, ORACLE["grad_features"], rtol=1e-7, atol=1e-10)
    of_head, of_decoders = published("g")
    assert of_head.keys() == dict(head.named_parameters()).keys()
    for module, expected in ((head, of_head), (loss.decode, of_decoders)):
        for name, gradient in expected.items():
            torch.testing.assert_close(module.get_parameter(name).grad, gradient, rtol=1e-7, atol=1e-10, msg=name)


def branches(weight=10.0, make=lambda dim: objectives.proxy_anchor(5, dim, alpha=64, margin=0.2)):
    return Branches(make, 12, 6, 3, weight, 0).double()


def rows_of(errors, seed=0):
    """What the system gives the loss, with these errors."""
    parts = [slow.unit_rows(8, size, seed + size, torch.float64) for size in (6, 2, 2, 2)]
    return torch.cat([*parts, torch.tensor(errors, dtype=torch.float64)], dim=1)


def proxy_anchor(z, labels, proxies, alpha=64.0, margin=0.2):
    """1/|P⁺| Σ log(1 + Σ_own e^{-α(s-δ)}) + 1/|P| Σ log(1 + Σ_others e^{α(s+δ)}), with loops over the proxies."""
    pull, push = [], []
    for c, proxy in enumerate(proxies):
        s = normalize(z, dim=1) @ normalize(proxy, dim=0)
        if (labels == c).any():
            pull.append(torch.log1p(torch.exp(-alpha * (s[labels == c] - margin)).sum()))
        push.append(torch.log1p(torch.exp(alpha * (s[labels != c] + margin)).sum()))
    return torch.stack(pull).mean() + torch.stack(push).mean()


ERRORS = [[0.1, 0.2, 0.9]] * 3 + [[0.5, 0.1, 0.9]] * 4 + [[0.5, 0.6, 0.4]]
LEFT_OUT = [[0.1, 0.2, 0.9]] * 8


@pytest.mark.parametrize("errors", [ERRORS, LEFT_OUT], ids=["a branch of one row", "branches without rows"])
def test_the_loss_by_its_literal_definition(errors):
    loss, rows = branches(weight=7.0), rows_of(errors).requires_grad_()
    total = 7.0 * proxy_anchor(rows[:, :6], LABELS, loss.whole.loss.proxies) + rows[:, 12:].mean()
    for branch in range(3):
        own = [i for i in range(8) if min(range(3), key=lambda g, i=i: errors[i][g]) == branch]
        if own:
            nodes = rows[own, 6 + 2 * branch : 8 + 2 * branch]
            total = total + proxy_anchor(nodes, LABELS[own], loss.of_branch[branch].loss.proxies)
    value, inputs = loss(rows, LABELS), [rows, *loss.whole.parameters(), *loss.of_branch[0].parameters()]
    torch.testing.assert_close(value, total)
    for one, other in zip(*(torch.autograd.grad(each, inputs) for each in (value, total)), strict=True):
        torch.testing.assert_close(one, other)


def test_a_row_teaches_its_own_branch_alone():
    rows = rows_of(ERRORS).requires_grad_()
    (slope,) = torch.autograd.grad(branches()(rows, LABELS), rows)
    taught = slope[:, 6:12].unflatten(1, (3, 2)).abs().sum(dim=2) > 0
    assert taught.tolist() == [[True, False, False]] * 3 + [[False, True, False]] * 4 + [[False, False, True]]


def test_only_decoders_learn_of_what_they_rebuild():
    head, loss = RelationalHead(12, 6, 3).double(), branches()
    f = torch.randn(5, 12, dtype=torch.float64).requires_grad_()
    loss.errors(head.chunks(f), head.nodes(f)).mean().backward()
    assert f.grad is None
    assert all(weight.grad is None for weight in head.parameters())
    assert all(weight.grad.abs().sum() > 0 for weight in loss.decode.parameters())


def test_a_branch_of_one_row_has_no_pairs_to_learn_from():
    rows = rows_of(ERRORS).requires_grad_()
    loss = branches(weight=0.0, make=lambda dim: objectives.supcon())
    (slope,) = torch.autograd.grad(loss(rows, torch.tensor([0, 0, 1, 0, 1, 2, 3, 0])), rows)
    assert slope[:3, 6:8].abs().sum() > 0
    assert slope[:, 10:12].abs().sum() == 0


def test_gradients_are_those_of_finite_differences():
    loss, rows = branches(make=lambda dim: objectives.proxy_anchor(5, dim, alpha=4)), rows_of(ERRORS)

    def of(rows):
        parts = rows[:, :6], *rows[:, 6:12].split(2, dim=1)
        return loss(torch.cat([*(normalize(part, dim=1) for part in parts), rows[:, 12:]], dim=1), LABELS)

    assert torch.autograd.gradcheck(of, rows.requires_grad_())
