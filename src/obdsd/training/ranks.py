"""One training in several processes: a global batch, the same loss on every rank, and the gradients of one process.

Each rank embeds its slice of the batch; rows are gathered with their gradient. The backward pass of the gather sums over ranks, and so
counts the one loss once a rank; the gradients are then averaged, which takes that factor out again, for the model as for β or proxies.
With one process nothing is sent and nothing copied.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from lightning.fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, distributed, nn

from obdsd.data import Part
from obdsd.errors import FinishedError, InputError, SharedError, Terminated
from obdsd.method.teachers import TeacherBatch
from obdsd.models.devices import choose_device
from obdsd.processes import processes
from obdsd.training.gradient import joined_proxies

T = TypeVar("T")
PRECISIONS: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def engine(device: str, precision: str) -> Fabric:
    """The engine on the device of that name, or with torchrun on each process's own; its processes are connected."""
    for name in ("lightning.fabric", "lightning.pytorch"):  # its remarks are ours already, or of no use
        logging.getLogger(name).setLevel(logging.WARNING)
    if processes() > 1 and ":" in device:
        raise InputError(f"device={device} is one device, torchrun gives each process its own; leave the number out")
    chosen = choose_device(device)
    if precision == "16" and chosen.type != "cuda":
        raise InputError(f"precision=16 needs a GPU, device={chosen.type} has none; use bf16")
    common: dict[str, Any] = {"accelerator": chosen.type, "precision": PRECISIONS[precision]}
    if processes() == 1:
        return Fabric(devices=1 if chosen.index is None else [chosen.index], **common)
    here = int(os.environ["LOCAL_WORLD_SIZE"])  # by ddp: gloo on CPUs, nccl on GPUs
    fabric = Fabric(devices=here, num_nodes=processes() // here, strategy="ddp", **common)
    fabric.launch()
    atexit.register(_disconnect)
    return fabric


def _disconnect() -> None:
    """gloo's threads, if they still run when Python ends, abort the process."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


class _Gathered(torch.autograd.Function):
    """All ranks' rows; the gradient of a rank's rows is the sum of what all ranks have for them. (torch's own is deprecated, and what it
    recommends is not in older versions.)"""

    @staticmethod
    def forward(ctx: Any, z: Tensor, ranks: Ranks) -> Tensor:
        ctx.own = slice(ranks.rank * len(z), (ranks.rank + 1) * len(z))
        return ranks.all(z)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0].clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(gradient)
        return gradient[ctx.own], None


class Ranks:
    """What the processes of a training tell each other."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self.size, self.rank = fabric, fabric.world_size, fabric.global_rank

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block that ends when another process is lost: what fails then is the connection, not this training."""
        try:
            yield
        except RuntimeError as fault:
            if self.size > 1 and (isinstance(fault, distributed.DistError) or "gloo" in str(fault)):
                raise Terminated("another process of the training was lost; --resume goes on from the last checkpoint") from fault
            raise

    def attempt(self, act: Callable[[], T]) -> T:
        """What each process must manage before the first step: where one fails, all end with its line."""
        if self.size == 1:
            return act()
        done, fault = None, None
        try:
            done = act()
        except (InputError, OSError) as error:
            fault = error
        for rank, failed in enumerate(self._gathered(fault)):
            if isinstance(failed, FinishedError):
                raise failed
            if failed is not None:
                raise SharedError(f"process {rank}: {failed}" if rank else str(failed))
        return done  # type: ignore[return-value]

    def agree(self, facts: Mapping[str, Any]) -> None:
        """All processes must know the same: where two differ they would train a mixture, and all end with one line that says in what."""
        first, *others = self._gathered(facts) if self.size > 1 else [facts]
        for rank, other in enumerate(others, start=1):
            for name in {**first, **other}:
                one, another = first.get(name), other.get(name)
                if one != another:
                    remedy = "start all with the same version, options and data"
                    raise SharedError(f"{name} is {one} in process 0 and {another} in process {rank}; {remedy}")

    def _gathered(self, value: T) -> list[T]:
        """Every rank's, in their order."""
        values = [value] * self.size
        distributed.all_gather_object(values, value)
        return values

    def rows(self, z: Tensor) -> Tensor:
        """All ranks' rows, with their gradient, in the order of the global batch."""
        return z if self.size == 1 else _Gathered.apply(z, self)

    def all(self, values: Tensor) -> Tensor:
        """The same without gradient."""
        if self.size == 1:
            return values
        parts = [torch.empty_like(values) for _ in range(self.size)]
        distributed.all_gather(parts, values.contiguous())
        return torch.cat(parts)

    def teaching(self, batch: TeacherBatch) -> TeacherBatch:
        """What the teacher knows of the global batch."""
        if self.size == 1:
            return batch
        parts = {name: self.all(part) for name, part in vars(batch).items() if part is not None and name != "proxies"}
        if batch.proxies is not None:
            proxies = self._gathered(batch.proxies.cpu())  # each rank may have another number of them
            parts["proxies"] = joined_proxies(proxies).to(batch.proxies)
        return TeacherBatch(**parts)

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """In one message. A parameter that got no gradient here got none elsewhere: the loss is the same."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self.size == 1 or not gradients:
            return
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        flat /= self.size
        for gradient, part in zip(gradients, torch.split(flat, [gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def any(self, asked: bool) -> bool:
        """Whether it is so on some rank; all must know before one of them may leave."""
        return asked if self.size == 1 else bool(self.all(torch.tensor([asked], device=self.fabric.device)).any())

    def embedded(self, part: Part, embed: Callable[[Part], NDArray[np.float32]]) -> NDArray[np.float32]:
        """Rows of all items, each rank's share embedded there."""
        if self.size == 1:
            return embed(part)
        shares = np.array_split(np.arange(len(part)), self.size)
        longest = len(shares[0])
        own = np.resize(shares[self.rank], longest) if len(shares[self.rank]) else np.zeros(longest, dtype=np.int64)
        rows = self.all(torch.from_numpy(embed(part.take(own))).to(self.fabric.device)).cpu().numpy()
        return np.concatenate([rows[i * longest : i * longest + len(share)] for i, share in enumerate(shares)])

    def once(self, compute: Callable[[], T]) -> T:
        """Computed by the first rank, told to the others."""
        return compute() if self.size == 1 else self.fabric.broadcast(compute() if self.rank == 0 else None)  # type: ignore[return-value]
