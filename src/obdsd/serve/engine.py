"""What answers: images are read by two threads, the model and the index are asked by one. So memory and threads stay bounded."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from obdsd.errors import InputError, Terminated, printable
from obdsd.serve.opened import BATCH, NO_RERANKING, Opened, open_index, stamp_of

READERS = 2  # images that are decoded at once: each may take a hundred megabytes
LOOK_SECONDS = 1.0  # between two looks at the index's folder
Made = TypeVar("Made")


class Wanted(NamedTuple):
    """An image that waits for its row."""

    opened: Opened
    pixels: Tensor
    row: Future[NDArray[np.float32]]


class Engine:
    """The index that is served now, and the threads that work on it; to be used in a `with` block.

    A change of the index's folder is seen within seconds. What is under way then ends with the index of before.
    """

    def __init__(self, opened: Opened) -> None:
        self.now = opened
        self._waiting: deque[Wanted] = deque()
        self._readers = ThreadPoolExecutor(READERS, "read")
        self._thinker = ThreadPoolExecutor(1, "think")
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._look_again, name="look")

    def __enter__(self) -> Engine:
        self._watch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._watch.join()
        for threads in (self._readers, self._thinker):
            threads.shutdown(cancel_futures=True)

    async def read(self, work: Callable[..., Made], *given: Any) -> Made:
        """The result of work on a file."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work, *given)

    async def think(self, work: Callable[..., Made], *given: Any) -> Made:
        """The result of work with the model or the index."""
        return await asyncio.get_running_loop().run_in_executor(self._thinker, work, *given)

    async def row(self, opened: Opened, pixels: Tensor) -> NDArray[np.float32]:
        """The row of an image; images that wait at the same time are seen by the model together."""
        wanted = Wanted(opened, pixels, Future())
        self._waiting.append(wanted)
        self._thinker.submit(self._embed_some)
        return await asyncio.wrap_future(wanted.row)

    def _embed_some(self) -> None:
        """As many of those that wait as the model sees at once. The turn of one that was seen with others is empty."""
        some: list[Wanted] = []
        while self._waiting and len(some) < BATCH and (not some or self._waiting[0].opened is some[0].opened):
            first = self._waiting.popleft()
            if first.row.set_running_or_notify_cancel():
                some.append(first)
        if not some:
            return
        try:
            rows = some[0].opened.rows([wanted.pixels for wanted in some])
        except Exception as fault:  # whatever it is, those who wait must hear of it
            for wanted in some:
                wanted.row.set_exception(fault)
            return
        for wanted, row in zip(some, rows, strict=True):
            wanted.row.set_result(row)

    def _look_again(self) -> None:
        seen = self.now.stamp
        while not self._ended.wait(LOOK_SECONDS):
            before, stamp = self.now, stamp_of(self.now.index.path)
            if stamp == seen:
                continue
            seen = stamp
            try:
                self.now = open_index(
                    before.index.path, before.rerank or NO_RERANKING, str(before.device), progress=self._end_if_asked, before=before
                )
                seen = self.now.stamp
            except Terminated:
                return
            except (InputError, OSError) as fault:
                print(printable(f"obdsd: {fault}; the index as it was before is served on"), file=sys.stderr, flush=True)

    def _end_if_asked(self, stage: str, done: int, total: int) -> None:
        """The work of a re-ranker on a changed index does not hold up the end."""
        if self._ended.is_set():
            raise Terminated
