"""The gradient of a batch larger than memory, exactly: the batch is the manifold, so its loss needs all rows at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

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
    batches = [ask(*chunk) for chunk in zip(torch.split(inputs, micro_batch), torch.split(indices, micro_batch), strict=True)]
    known = None if batches[0].known is None else torch.cat([batch.known for batch in batches if batch.known is not None])
    return TeacherBatch(torch.cat([batch.embeddings for batch in batches]), known, indices)


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _set_random_state(state: tuple[Tensor, Tensor | None], device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
