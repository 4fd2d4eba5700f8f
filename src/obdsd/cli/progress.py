"""Progress on standard error: a bar in a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

LINE_SECONDS = 10.0  # between two lines where there is no terminal

Advance = Callable[[int], None]


class _Speed(TextColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


@contextmanager
def bar(what: str, total: int) -> Iterator[Advance]:
    """A function to be told how many of `total` were done since it was last told."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(what, total).advance
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), _Speed(""), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)


class _Lines:
    """The same as plain lines, for logs: none if it is over soon."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self.start = self.last = time.monotonic()

    def advance(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self.last < LINE_SECONDS:
            return
        self.last = now
        speed = self.done / (now - self.start)
        left = (self.total - self.done) / speed
        print(f"{self.what}: {self.done:,} of {self.total:,}, {speed:,.0f}/s, {left:,.0f} s left", file=sys.stderr, flush=True)
