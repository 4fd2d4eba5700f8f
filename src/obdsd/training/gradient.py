"""The gradient of a batch larger than memory, and how hard the teacher pulls in it.

The batch is the manifold, so its loss needs all rows at once: the model sees chunks, and the gradient is exact."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from obdsd.method.distillation import SelfDistillation
from obdsd.method.teachers import TeacherBatch

LossOf = Callable[[Tensor], Tensor]


def backward(
    model: Callable[[Tensor], Tensor], inputs: Tensor, loss_of: LossOf, micro_batch: int, scaled: Callable[[Tensor], Any]
) -> Tensor:
    """Rows of `inputs`, with gradients left in the model's and the loss's parameters; the rows are returned without graph.

    With `micro_batch` the model sees that many inputs at once: rows without graph first, the loss on all of them, then chunk by
    chunk again with each row's gradient; dropout draws the same numbers both times. `scaled` runs the loss's backward pass (the
    engine's, which may scale it).
    """
    if not micro_batch or micro_batch >= len(inputs):
        z = model(inputs)
        scaled(loss_of(z))
        return z.detach()
    chunks = torch.split(inputs, micro_batch)
    states, rows = [], []
    for chunk in chunks:
        states.append(_random_state(inputs.device))
        with torch.no_grad():
            rows.append(model(chunk))
    z = torch.cat(rows).requires_grad_()
    scaled(loss_of(z))
    assert z.grad is not None
    after = _random_state(inputs.device)
    for chunk, state, gradient in zip(chunks, states, torch.split(z.grad, micro_batch), strict=True):
        _set_random_state(state, inputs.device)
        torch.autograd.backward(model(chunk), gradient)
    _set_random_state(after, inputs.device)
    return z.detach()


def in_chunks(ask: Callable[[Tensor, Tensor], TeacherBatch], inputs: Tensor, indices: Tensor, micro_batch: int) -> TeacherBatch:
    """What a teacher knows of the whole batch, asked a chunk at a time."""
    if not micro_batch or micro_batch >= len(inputs):
        return ask(inputs, indices)
    batches = [vars(ask(*chunk)) for chunk in zip(torch.split(inputs, micro_batch), torch.split(indices, micro_batch), strict=True)]
    parts = {name: [batch[name] for batch in batches] for name, part in batches[0].items() if part is not None}
    return TeacherBatch(**{name: joined_proxies(part) if name == "proxies" else torch.cat(part) for name, part in parts.items()})


def joined_proxies(parts: Sequence[Tensor]) -> Tensor:
    """The proxies of a batch whose teacher was shown parts of it: each once, though several parts may have brought it."""
    same = all(torch.equal(part, parts[0]) for part in parts[1:])
    return parts[0] if same else torch.unique(torch.cat([*parts]), dim=0)


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _set_random_state(state: tuple[Tensor, Tensor | None], device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)


@torch.no_grad()
def targets_reading(distill: SelfDistillation, teacher: TeacherBatch, labels: Tensor) -> dict[str, float]:
    """Entropy of the targets' rows as a share of a flat row's, and what they give to the other items of a row's class; nothing where the
    matching asks for no targets."""
    if "targets" not in distill.matching.reads:
        return {}
    if teacher.known is not None:
        teacher, labels = teacher.only_known(), labels[teacher.known]
    if len(labels) < 2:
        return {}
    targets = torch.nn.functional.normalize(distill.taught(teacher), p=1, dim=1)  # of labels that do not sum to 1, their shares
    entropy = -torch.special.xlogy(targets, targets).sum(dim=1).mean()
    kin = (labels[:, None] == labels[None, :]).fill_diagonal_(False)
    return {"entropy": float(entropy) / math.log(len(labels)), "same_class": float((targets * kin).sum(dim=1).mean())}


def gradient_share(rows: Tensor, dim: int, base: Tensor, distillation: Tensor) -> float:
    """‖∂distillation/∂z‖ / (‖∂distillation/∂z‖ + ‖∂base/∂z‖), of what moves unit rows: the parts along each row are left out.

    z are the first `dim` columns; features may stand beside them."""
    pulls, z = [], rows[:, :dim].detach()
    for part in (distillation, base):
        (gradient,) = torch.autograd.grad(part, rows, retain_graph=True)
        gradient = gradient[:, :dim]
        along = (gradient * z).sum(dim=1, keepdim=True) * z
        pulls.append(float(torch.linalg.matrix_norm(gradient - along)))
    return pulls[0] / (sum(pulls) or 1.0)
