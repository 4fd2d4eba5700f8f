"""What people see while something runs: bars in a terminal, now and then a line elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

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


class TrainingDisplay:
    """A training that shows nothing; the others build on it."""

    def __init__(self, epochs: int, steps: int, first_epoch: int = 0) -> None:
        self.epochs, self.steps, self.first_epoch = epochs, steps, first_epoch
        self.began = time.monotonic()

    def __enter__(self) -> TrainingDisplay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def note(self, text: str) -> None:
        """A line that stays."""

    def step(self, epoch: int, items: int, parts: Mapping[str, float]) -> None:
        """A batch of `items` is done; `parts` of the loss."""

    def epoch(self, line: Mapping[str, Any]) -> None:
        """An epoch is done; `line` is what metrics.jsonl holds of it."""


class TrainingLines(TrainingDisplay):
    """A line an epoch on standard error, for logs."""

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def epoch(self, line: Mapping[str, Any]) -> None:
        done = line["epoch"] + 1
        left = (time.monotonic() - self.began) / (done - self.first_epoch) * (self.epochs - done)
        self.note(f"epoch {done}/{self.epochs}: {_summary(line)}, {left:,.0f} s left")


class TrainingBars(TrainingDisplay):
    """A bar for the epochs and one for the steps, with what the last of each gave."""

    def __init__(self, epochs: int, steps: int, first_epoch: int = 0) -> None:
        super().__init__(epochs, steps, first_epoch)
        columns = (
            TextColumn("{task.description:<6}"),
            BarColumn(30),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[last]}"),
        )
        self.progress = Progress(*columns, console=Console(stderr=True))
        self.all = self.progress.add_task("epochs", total=epochs, completed=first_epoch, last="")
        self.one = self.progress.add_task("steps", total=steps, last="")
        self.seen = 0

    def __enter__(self) -> TrainingDisplay:
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.progress.stop()

    def note(self, text: str) -> None:
        self.progress.console.print(text, highlight=False, markup=False)

    def step(self, epoch: int, items: int, parts: Mapping[str, float]) -> None:
        self.seen += items
        speed = self.seen / (time.monotonic() - self.began)
        self.progress.advance(self.one)
        self.progress.update(self.one, last=f"{_parts(parts)}, {speed:,.0f}/s")

    def epoch(self, line: Mapping[str, Any]) -> None:
        self.progress.update(self.all, completed=line["epoch"] + 1, last=_summary(line))
        self.progress.reset(self.one)
        self.began, self.seen = time.monotonic(), 0


def training_display(show: bool) -> type[TrainingDisplay]:
    if not show:
        return TrainingDisplay
    return TrainingBars if Console(stderr=True).is_terminal else TrainingLines


def _parts(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in parts.items())


def _summary(line: Mapping[str, Any]) -> str:
    words = [_parts(line["loss"]), f"{line['items_per_second']:,.0f}/s"]
    words += [f"{part} R@1 {100 * line[part]['recall@1']:.2f} %" for part in ("validation", "test") if part in line]
    return ", ".join(words)
