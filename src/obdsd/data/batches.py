"""P×K batches as a function of (seed, epoch): nothing to save, and resuming is skipping to batch i."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from obdsd.errors import InputError


class Draw(int):
    """One place in a batch: which item, and the key of its randomness. The position counts in the global batch of all ranks.

    It is the item's number, so that any data set can be asked for it.

    >>> ["ant", "bee", "cat"][Draw(2, epoch=0, batch=5, position=1)]
    'cat'
    """

    epoch: int
    batch: int
    position: int

    def __new__(cls, item: int, epoch: int, batch: int, position: int) -> Draw:
        draw = super().__new__(cls, item)
        draw.epoch, draw.batch, draw.position = epoch, batch, position
        return draw

    def __reduce__(self) -> tuple[type[Draw], tuple[int, int, int, int]]:  # on its way to a process that loads items
        return Draw, (int(self), self.epoch, self.batch, self.position)

    @property
    def item(self) -> int:
        return int(self)


class Batches(Sampler[list[Draw]], abc.ABC):
    """What batches share: their shape, which epoch a loader asks for next and from which batch on, and this rank's slice of each."""

    number: int  # of batches in an epoch
    fewest = 2  # of a class in a batch

    def __init__(self, batch_size: int, per_class: int, seed: int, rank: int, world_size: int) -> None:
        b, k = batch_size, per_class
        if k < self.fewest:
            what = "for a pair of each class; try 2" if self.fewest > 1 else "a view of each item at least; try 1"
            raise InputError(f"per_class={k} must be {self.fewest} or more, {what}")
        if b < 2 * k or b % k:
            near = max(2 * k, b // k * k)
            raise InputError(f"batch_size={b} must be a multiple of per_class={k}, for 2 classes or more; try {near} or {near + k}")
        if b % world_size:
            raise InputError(f"batch_size={b} must be a multiple of the {world_size} processes that share it")
        self.batch_size, self.per_class, self.classes = b, k, b // k
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.current, self.first = 0, 0

    @abc.abstractmethod
    def items_of(self, epoch: int) -> Iterator[list[int]]:
        """The items of each global batch of an epoch."""

    def __len__(self) -> int:
        return self.number - self.first

    def __iter__(self) -> Iterator[list[Draw]]:
        return self.epoch(self.current, self.first)

    def set_epoch(self, epoch: int, first: int = 0) -> None:
        """What the next iteration gives: this epoch, from batch `first` on."""
        self.current, self.first = epoch, first

    def epoch(self, epoch: int, first: int = 0) -> Iterator[list[Draw]]:
        """This rank's batches of an epoch, from batch `first` on."""
        share = self.batch_size // self.world_size
        for batch, items in enumerate(self.items_of(epoch)):
            if batch >= first:
                draws = [Draw(item, epoch, batch, position) for position, item in enumerate(items)]
                yield draws[self.rank * share : (self.rank + 1) * share]


class InstanceBatches(Batches):
    """Batches of `batch_size / per_class` different items, each `per_class` times in a row: views of one image, no labels.

    Every item comes once an epoch, but for the few that do not fill a last batch.

    >>> [[draw.item for draw in batch] for batch in InstanceBatches(5, batch_size=4, per_class=2, seed=0).epoch(0)]
    [[2, 2, 4, 4], [3, 3, 0, 0]]
    """

    fewest = 1

    def __init__(self, items: int, batch_size: int = 112, per_class: int = 2, seed: int = 0, *, rank: int = 0, world_size: int = 1) -> None:
        super().__init__(batch_size, per_class, seed, rank, world_size)
        self.items, self.number = items, items // self.classes
        if not self.number:
            raise InputError(f"batch_size={batch_size} needs {self.classes} items, there are {items}; try {max(items, 2) * per_class}")

    def items_of(self, epoch: int) -> Iterator[list[int]]:
        order = np.random.default_rng((self.seed, epoch)).permutation(self.items)
        for batch in range(self.number):
            yield np.repeat(order[batch * self.classes : (batch + 1) * self.classes], self.per_class).tolist()


class ClassBatches(Batches):
    """Batches of `batch_size / per_class` classes × `per_class` different images; ⌊N / batch_size⌋ of them are an epoch.

    A `batch_sampler` for any map-style data set with these labels, such as torchvision's `ImageFolder` with its `targets`.
    Classes are drawn without replacement within a batch, each image of a class once before any comes again within an epoch.
    A class with fewer than `per_class` images repeats them; one with a single image can form no pair and takes no part. With
    `replacement` classes and images are drawn with replacement, as the published code does. Of several processes, rank r of
    `world_size` gets its own contiguous slice of the same global batch.

    >>> batches = ClassBatches(np.array([0, 0, 1, 1, 2, 2]), batch_size=4, per_class=2, seed=0)
    >>> [[draw.item for draw in batch] for batch in batches.epoch(0)] == [[draw.item for draw in batch] for batch in batches.epoch(0)]
    True
    """

    def __init__(
        self,
        labels: Sequence[int] | NDArray[np.int64],
        batch_size: int = 112,
        per_class: int = 2,
        seed: int = 0,
        *,
        replacement: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(batch_size, per_class, seed, rank, world_size)
        self.members, self.items, self.replacement = members_of(labels), len(labels), replacement
        self._settle()

    def _settle(self) -> None:
        """How many batches the items are."""
        b, k, usable = self.batch_size, self.per_class, len(self.members)
        self.number = self.items // b
        if self.classes > usable and not self.replacement:
            needed = f"batch_size={b} needs {self.classes} classes × {k}"
            raise InputError(f"{needed}, but {usable} classes have 2 images or more; try {max(usable, 2) * k}")
        if not self.number:
            most = max(self.items // k * k, 2 * k)
            raise InputError(f"batch_size={b} is more than the {self.items} training items; try {most}")

    def without(self, items: NDArray[np.int64]) -> ClassBatches:
        """The same batches, but these of their items never come, and an epoch is as much shorter.

        >>> batches = ClassBatches(np.arange(2).repeat(4), batch_size=4, seed=0).without(np.array([0, 1, 6]))
        >>> sorted(draw.item for batch in batches.epoch(0) for draw in batch)
        [2, 3, 4, 7]
        """
        left = copy(self)
        left.members = [kept for members in self.members if len(kept := np.setdiff1d(members, items)) > 1]
        left.items -= len(items)
        left._settle()
        left.number = min(left.number, self.number)  # which may have been cut
        return left

    def items_of(self, epoch: int) -> Iterator[list[int]]:
        random = np.random.default_rng((self.seed, epoch))
        decks: list[list[int]] = [[] for _ in self.members]
        for _ in range(self.number):
            chosen = random.choice(len(self.members), self.classes, replace=self.replacement).tolist()
            yield [index for c in chosen for index in self._deal(random, decks, c)]

    def _deal(self, random: np.random.Generator, decks: list[list[int]], c: int) -> list[int]:
        """K images of class c: from its shuffled deck, or drawn with replacement."""
        if self.replacement:
            return random.choice(self.members[c], self.per_class).tolist()
        return deal(random, self.members[c], decks[c], self.per_class)


class RoundBatches(Batches):
    """EPSHN's batches: rounds in which every class gives `per_class` of its images, in one order of the classes an epoch, cut to size.

    Every class is brought to one length, that of the largest class, rounded to a multiple of K = `per_class`: down if fewer than ⌊0.3 K⌋
    images are over, else up. Its images are shuffled, then cut, or filled up with images of it that are drawn again. A batch may hold the
    end of one round and the beginning of the next. What does not fill a last batch is left out; a class of one image takes no part.

    >>> batches = RoundBatches(np.array([0, 0, 0, 0, 1, 1]), batch_size=4, per_class=2, seed=0)
    >>> [[int(draw.item > 3) for draw in batch] for batch in batches.epoch(0)]
    [[0, 0, 1, 1], [0, 0, 1, 1]]
    """

    def __init__(
        self,
        labels: Sequence[int] | NDArray[np.int64],
        batch_size: int = 128,
        per_class: int = 16,
        seed: int = 0,
        *,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(batch_size, per_class, seed, rank, world_size)
        self.members = members_of(labels)
        whole, over = divmod(max(map(len, self.members), default=0), per_class)
        self.rounds = max(whole + (over > 0 and over >= int(0.3 * per_class)), 1)
        given = len(self.members) * self.rounds * per_class
        self.number = given // batch_size
        if not self.number:
            rule = f"is more than the {given} items that {len(self.members)} classes give"
            raise InputError(f"batch_size={batch_size} {rule} in {self.rounds} rounds of {per_class}; try {max(given, 2 * per_class)}")

    def items_of(self, epoch: int) -> Iterator[list[int]]:
        random = np.random.default_rng((self.seed, epoch))
        length = self.rounds * self.per_class
        rows = np.stack([self._brought_to(length, random, members) for members in self.members])
        rows = rows[random.permutation(len(rows))]
        items = rows.reshape(len(rows), self.rounds, self.per_class).swapaxes(0, 1).ravel()  # round by round, class by class
        for batch in range(self.number):
            yield items[batch * self.batch_size : (batch + 1) * self.batch_size].tolist()

    def _brought_to(self, length: int, random: np.random.Generator, members: NDArray[np.int64]) -> NDArray[np.int64]:
        again = random.choice(members, max(length - len(members), 0))
        return random.permutation(np.concatenate((random.permutation(members)[:length], again)))


def deal(random: np.random.Generator, members: NDArray[np.int64], deck: list[int], count: int) -> list[int]:
    """So many of a class's items from its shuffled deck, which is filled again where it is used up."""
    dealt: list[int] = []
    while len(dealt) < count:
        if not deck:
            fresh = random.permutation(members).tolist()
            # What is dealt already comes last in the new deck, so that a batch repeats an item only if it must.
            deck += [i for i in fresh if i in dealt] + [i for i in fresh if i not in dealt]
        dealt.append(deck.pop())
    return dealt


def members_of(labels: Sequence[int] | NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The items of each class that has two or more."""
    numbers = np.asarray(labels)
    by_class = np.argsort(numbers, kind="stable")
    _, starts = np.unique(numbers[by_class], return_index=True)
    return [indices for indices in np.split(by_class, starts[1:]) if len(indices) > 1]
