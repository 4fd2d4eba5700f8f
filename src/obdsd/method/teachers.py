"""Teachers: they tell what the batch's similarities should be. All stay in eval mode, none has anything to train.

A training loop drives any of them the same way: `teacher(inputs, indices)` gives the batch's `TeacherBatch`; then
`observe(indices, embeddings)` after the student's forward pass, `step(student)` after an optimiser step and
`update(student)` at an epoch's end. A teacher ignores what it does not need.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.method.checks import check_number, check_rows, check_unit_length, checked_indices, judge_late, refuse, require
from obdsd.method.precision import HALF, in_full


@dataclass(frozen=True)
class TeacherBatch:
    """What a teacher knows of one batch: unit rows, which of them it really knows (None: all), and the samples' indices.

    Targets that need more put it there in `Targets.complete`: `proxies`, unit rows in the same space that stand for classes, as a proxy
    loss learns them; `labels`, the classes of the rows.
    """

    embeddings: Float[Tensor, "b d"]
    known: Bool[Tensor, " b"] | None = None
    indices: Int[Tensor, " b"] | None = None
    proxies: Float[Tensor, "p d"] | None = None
    labels: Int[Tensor, " b"] | None = None

    def __post_init__(self) -> None:
        is_matrix = isinstance(self.embeddings, Tensor) and self.embeddings.ndim == 2
        shape = tuple(self.embeddings.shape) if isinstance(self.embeddings, Tensor) else type(self.embeddings).__name__
        require(is_matrix, "embeddings", shape, "must be a (batch, dim) tensor", "let the model give one row a sample")
        if self.known is not None and self.known.dtype != torch.bool:
            refuse("known.dtype", self.known.dtype, "must be torch.bool", "pass known.bool()")
        for field, rows in (("known", self.known), ("indices", self.indices), ("labels", self.labels)):
            size = len(self.embeddings) if rows is None else len(rows)
            require(size == len(self.embeddings), field, f"{size} rows", "must match the embeddings'", f"give one {field} entry a row")
        if self.proxies is not None and tuple(self.proxies.shape[1:]) != tuple(self.embeddings.shape[1:]):
            dim = self.embeddings.shape[1]
            refuse("proxies.shape", tuple(self.proxies.shape), f"must be (proxies, {dim}) as the embeddings'", "pass one row a proxy")

    def only_known(self) -> TeacherBatch:
        """The same batch without the rows that the teacher does not know."""
        if self.known is None:
            return self
        indices, labels = (None if values is None else values[self.known] for values in (self.indices, self.labels))
        return TeacherBatch(self.embeddings[self.known], indices=indices, proxies=self.proxies, labels=labels)


class Teacher(nn.Module):
    """What all teachers share: eval mode whatever a parent module is told, and hooks that do nothing unless overridden.

    Attributes:
        teaches: Whether there is anything to ask it.
        steady: Whether it is the same in every epoch.
        trains_first: Whether a training of its own comes before.
        knows_proxies: Whether its rows lie in the space of the student's proxies.
        faster: Makes a copy of a network that answers sooner. A teacher that is a `network` then asks such a copy of itself.
        preprocessing: How images are prepared for it; None as for the student. A training then shows it the same crops in its own size.
        remarks: What a user should know of it before a training begins.
        dim: Length of its rows; None if it cannot tell before it is asked.
    """

    teaches = True
    steady = False
    trains_first = False
    knows_proxies = False
    faster: Callable[[nn.Module], nn.Module] | None = None
    preprocessing: Any = None
    remarks: Sequence[str] = ()
    dim: int | None = None

    def train(self, mode: bool = True) -> Teacher:
        return super().train(False)

    @property
    def network(self) -> nn.Module | None:
        """The model that it asks, if that is one and stands still for an epoch at least."""
        return None

    @property
    def tells_all(self) -> bool:
        """Whether it can tell its rows of the whole training set at once."""
        return "model" in dict(self.named_children())

    def all_rows(self, embed: Callable[[nn.Module], Float[Tensor, "n d"]]) -> tuple[Float[Tensor, "n d"], Bool[Tensor, " n"] | None]:
        """Its rows of the whole training set, in the order of the items, and which it knows (None: all). `embed` gives a model's rows."""
        return embed(self.get_submodule("model")), None

    def begin(self, student: nn.Module, train_first: Callable[[], nn.Module]) -> None:
        """Called once, before the first step; `train_first` trains the plain loss to its end and returns the model."""

    def update(self, student: nn.Module) -> None:
        """To be called at an epoch's end; a time to wait for the last value checks."""
        judge_late(wait=True)

    def step(self, student: nn.Module) -> None:
        """To be called after an optimiser step."""

    def observe(self, indices: Int[Tensor, " b"], embeddings: Float[Tensor, "b d"]) -> None:
        """To be called after a student's forward pass with what it gave."""


class NoTeacher(Teacher):
    """Nobody teaches: the plain loss."""

    teaches = False


class _CopyTeacher(Teacher):
    """A frozen copy of a model that maps inputs to unit rows: of the student, unless a teacher is made of another."""

    knows_proxies = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        try:
            self.model = copy.deepcopy(model).requires_grad_(False)
        except RuntimeError as fault:
            raise InputError(f"model={type(model).__name__} cannot be copied ({fault}); let it keep no outputs between calls") from fault
        length: Any = getattr(model, "dim", None)
        self.dim = length if isinstance(length, int) else None
        self._fast: list[nn.Module] = []  # a list, so that the copy is no part of this module's state
        self.train(False)

    @property
    def network(self) -> nn.Module | None:
        return self.model

    @torch.no_grad()
    def forward(self, inputs: Any, indices: Int[Tensor, " b"] | None = None) -> TeacherBatch:
        if self.faster is not None and not self._fast:
            self._fast.append(self.faster(self.model))
        return TeacherBatch((self._fast or [self.model])[0](inputs), indices=indices)

    def begin(self, student: nn.Module, train_first: Callable[[], nn.Module]) -> None:
        self._copy(student)

    def _tensor_pairs(self, student: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
        """Own tensors beside the student's, by order, so that a student wrapped for several devices or compiled fits too."""
        own = [*self.model.parameters(), *self.model.buffers()]
        theirs = [*student.parameters(), *student.buffers()]
        if [t.shape for t in own] != [t.shape for t in theirs]:
            rule, remedy = "must have the teacher's architecture", "pass the model that the teacher was made of"
            refuse("student", type(student).__name__, rule, remedy)
        return zip(own, theirs, strict=True)

    def _load_from_state_dict(self, *how: Any) -> None:
        self._fast.clear()
        super()._load_from_state_dict(*how)

    @torch.no_grad()
    def _copy(self, student: nn.Module) -> None:
        for own, theirs in self._tensor_pairs(student):
            own.copy_(theirs)
        self._fast.clear()


class PreviousEpochTeacher(_CopyTeacher):
    """The model as it was at the end of the previous epoch teaches (PSD, Sec. 3.2).

    >>> model = nn.Linear(2, 2)
    >>> teacher = PreviousEpochTeacher(model)
    >>> _ = model.weight.data.fill_(0.5)
    >>> teacher.update(model)  # at the epoch's end
    >>> bool((teacher.model.weight == 0.5).all())
    True
    """

    def update(self, student: nn.Module) -> None:
        super().update(student)
        self._copy(student)


class EMATeacher(_CopyTeacher):
    """A running average of the student teaches: after each step, teacher ← decay·teacher + (1-decay)·student.

    Args:
        model: The student.
        decay: How slowly the average follows.
    """

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        super().__init__(model)
        check_number("decay", decay)
        require(0 <= decay < 1, "decay", decay, "must lie in [0, 1)", "try 0.999")
        half = any(p.dtype in HALF for p in model.parameters())
        require(not half, "model", "half precision", "would round the average away", "keep it in float32 and use autocast")
        self.decay = decay

    @property
    def network(self) -> nn.Module | None:
        return None  # it changes with every step, and a faster copy would be made as often

    @torch.no_grad()
    def step(self, student: nn.Module) -> None:
        for own, theirs in self._tensor_pairs(student):
            if own.is_floating_point():
                own.copy_(torch.where(own == theirs, own, own.lerp(theirs, 1 - self.decay)))  # equal infinities (masks) stay
            else:  # counters
                own.copy_(theirs)


class FrozenTeacher(_CopyTeacher):
    """A model that no longer learns teaches. It must give unit rows.

    Args:
        model: The model that teaches; it is copied.
        transform: Maps the student's inputs to what the model expects (another size, another normalisation).
        preprocessing: What the model expects of images, if a training shows it images of its own.
    """

    steady = True
    knows_proxies = False

    def __init__(self, model: nn.Module, transform: Callable[[Any], Any] | None = None, preprocessing: Any = None) -> None:
        super().__init__(model)
        self.transform, self.preprocessing = transform, preprocessing

    def begin(self, student: nn.Module, train_first: Callable[[], nn.Module]) -> None:
        """Nothing of the student is copied."""

    @torch.no_grad()
    def forward(self, inputs: Any, indices: Int[Tensor, " b"] | None = None) -> TeacherBatch:
        return super().forward(inputs if self.transform is None else self.transform(inputs), indices)

    @staticmethod
    def from_embeddings(embeddings: Float[Tensor, "n d"]) -> Teacher:
        """A teacher that looks each sample's embedding up by its index: no model, no forward pass.

        >>> teacher = FrozenTeacher.from_embeddings(torch.eye(3))
        >>> teacher(None, torch.tensor([2, 0])).embeddings
        tensor([[0., 0., 1.],
                [1., 0., 0.]])
        """
        check_rows("embeddings", embeddings)
        check_unit_length("embeddings", torch.linalg.vector_norm(in_full(embeddings).cpu(), dim=1), embeddings.dtype)  # at once
        return TableTeacher(embeddings.detach().clone())


class BornAgainTeacher(_CopyTeacher):
    """A complete first training with the plain loss teaches the second (born-again networks, BAR)."""

    steady = True
    trains_first = True

    def begin(self, student: nn.Module, train_first: Callable[[], nn.Module]) -> None:
        self._copy(train_first())


class TableTeacher(Teacher):
    """One row a sample of the training set, looked up by index; of samples that are not `seen` it knows nothing.

    Args:
        table: The rows, of unit length where they are seen.
        seen: Which rows are known; None for all.
        persistent: Whether its state holds the rows.
    """

    table: Tensor
    seen: Tensor | None
    steady = True

    def __init__(self, table: Tensor, seen: Tensor | None = None, persistent: bool = True) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent)
        self.register_buffer("seen", seen, persistent)
        self.dim = table.shape[1]

    def forward(self, inputs: Any, indices: Int[Tensor, " b"] | None = None) -> TeacherBatch:
        indices = self._own(indices)
        return TeacherBatch(self.table[indices], known=None if self.seen is None else self.seen[indices], indices=indices)

    @property
    def tells_all(self) -> bool:
        return self.steady

    def all_rows(self, embed: Callable[[nn.Module], Float[Tensor, "n d"]]) -> tuple[Float[Tensor, "n d"], Bool[Tensor, " n"] | None]:
        return self.table, self.seen

    def _own(self, indices: Tensor | None) -> Tensor:
        remedies = "call teacher(inputs, indices) with positions in the training set", "size the teacher by the training set"
        return checked_indices(indices, self.table, *remedies)


class MemoryTeacher(TableTeacher):
    """Each sample's own latest embedding teaches: no second forward pass. A sample not yet seen is not `known`.

    >>> teacher = MemoryTeacher(num_samples=4, dim=2)
    >>> teacher.observe(torch.tensor([3]), torch.tensor([[0.0, 1.0]]))
    >>> teacher(None, torch.tensor([3, 1])).known
    tensor([ True, False])
    """

    seen: Tensor
    steady = False
    knows_proxies = True

    def __init__(self, num_samples: int, dim: int) -> None:
        check_number("num_samples", num_samples, Integral)
        check_number("dim", dim, Integral)
        require(num_samples >= 1 and dim >= 1, "num_samples, dim", (num_samples, dim), "must be 1 or more", "pass the training set's size")
        super().__init__(torch.zeros(num_samples, dim), torch.zeros(num_samples, dtype=torch.bool))

    @torch.no_grad()
    def observe(self, indices: Int[Tensor, " b"], embeddings: Float[Tensor, "b d"]) -> None:
        """Remember the rows, in float32; rows of half precision are rid of their rounding in length."""
        indices = self._own(indices)
        shape, dim = tuple(embeddings.shape), self.table.shape[1]
        require(shape == (len(indices), dim), "embeddings.shape", shape, f"must be ({len(indices)}, {dim})", "one row an index")
        if not len(indices):
            return
        check_unit_length("embeddings", torch.linalg.vector_norm(in_full(embeddings), dim=1), embeddings.dtype)
        rows = nn.functional.normalize(in_full(embeddings), dim=1) if embeddings.dtype in HALF else embeddings
        # A sample drawn twice in a batch: the last row counts, on every device, whatever order the writes happen in.
        twins = indices[:, None] == indices[None, :]
        last = (twins * torch.arange(1, len(indices) + 1, device=indices.device)).argmax(dim=1)
        self.table[indices] = rows.to(self.table)[last]
        self.seen[indices] = True
