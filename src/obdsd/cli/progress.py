"""Progress on standard error: a bar in a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

LINE_SECONDS = 10.0  # between two lines where there is no terminal

Advance = Callable[[int], None]


class _Speed(TextColumn):
    """How many of the unit named a second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f} {self.text_format}/s")


@contextmanager
def bar(what: str, total: int, unit: str = "items") -> Iterator[Advance]:
    """A function to be told how many of `total` were done since it was last told."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(what, total, unit).advance
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), _Speed(unit), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """A function to be told stage, done and total: one bar after the other."""
    advance: dict[str, Advance] = {}
    before: Counter[str] = Counter()
    with ExitStack() as shown:

        def tell(stage: str, done: int, total: int) -> None:
            if stage not in advance:
                shown.close()  # the bar before
                advance[stage] = shown.enter_context(bar(stage, total))
            advance[stage](done - before[stage])
            before[stage] = done

        yield tell


class _Lines:
    """The same as plain lines, for logs: none if it is over soon."""

    def __init__(self, what: str, total: int, unit: str) -> None:
        self.what, self.total, self.unit, self.done = what, total, unit, 0
        self.start = self.last = time.monotonic()

    def advance(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if not self.done or now - self.last < LINE_SECONDS:
            return
        self.last = now
        speed = self.done / (now - self.start)
        left = (self.total - self.done) / speed
        line = f"{self.what}: {self.done:,} of {self.total:,}, {speed:,.0f} {self.unit}/s, {left:,.0f} s left"
        print(line, file=sys.stderr, flush=True)
