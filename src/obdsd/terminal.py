"""What people see while something runs: bars in a terminal, elsewhere a line every ten seconds, or nothing.

Bars and lines come from threads of their own, so that they go on where a library computes for long without a word.
"""

from __future__ import annotations

import _thread
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

LINE_SECONDS = 10.0  # between two lines where there is no terminal
WATCH_SECONDS = 1.0  # between two words to whoever watches from another process

Advance = Callable[[int], None]
Tell = Callable[[str, int, int], None]
"""Told the stage, how much of it is done, and of how much: 1 where it cannot be counted."""
Watch = Callable[[int, int, str], object]
"""Told from another process how many steps of a training are done, of how many, and the line that stands for it now."""


class Count:
    """How much of something is done, of how much, and since when."""

    def __init__(self, what: str, total: int, unit: str = "", done: int = 0) -> None:
        self.what, self.total, self.unit, self.done, self.begun = what, total, unit, done, done
        self.since = time.monotonic()

    @property
    def speed(self) -> str:
        """Such as 310 images/s; nothing without a unit, or at the beginning."""
        seconds = time.monotonic() - self.since
        return f"{(self.done - self.begun) / seconds:,.0f} {self.unit}/s" if self.unit and self.done > self.begun and seconds else ""

    @property
    def left(self) -> str:
        """How long it will go on at this speed; at the beginning, how long it has been going on."""
        seconds = time.monotonic() - self.since
        if self.done == self.begun:
            return f"{span(seconds)} so far"
        return f"{span(seconds / (self.done - self.begun) * (self.total - self.done))} left"

    def line(self) -> str:
        counted = [f"{self.done:,} of {self.total:,}"] if self.total > 1 else []
        return f"{self.what}: {', '.join(filter(None, [*counted, self.speed, self.left]))}"


def span(seconds: float) -> str:
    """As people say it.

    >>> [span(seconds) for seconds in (7.4, 90, 750, 12000)]
    ['7 s', '90 s', '12 min', '3 h 20 min']
    """
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class Lines:
    """While its `with` block runs, what stands for now is said whenever nothing was said for so many seconds."""

    def __init__(self, say: Callable[[str], object], seconds: float, now: Callable[[], str | None]) -> None:
        self._say, self._seconds, self._now, self._last = say, seconds, now, time.monotonic()
        self._lock, self._over = threading.Lock(), threading.Event()

    def __enter__(self) -> Lines:
        if self._seconds < math.inf:
            with suppress(RuntimeError):  # too little memory for a thread: then there are no lines
                _thread.start_new_thread(self._go_on, ())  # threading.Thread waits without end for one that fails at its beginning
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:  # what is being said is said to its end, and nothing after it
            self._over.set()

    def say(self, text: str) -> None:
        with self._lock:
            self._last = time.monotonic()
            self._say(text)

    def _go_on(self) -> None:
        while not self._over.wait(self._seconds / 10):
            if time.monotonic() - self._last >= self._seconds and (line := self._now()):
                with self._lock, suppress(OSError):  # nobody reads on: the command itself will find out
                    if not self._over.is_set():
                        self._last = time.monotonic()
                        self._say(line)


class _Last(TextColumn):
    """What was told last, as it is."""

    def render(self, task: Task) -> Text:
        return Text(str(task.fields["last"]))


def _bars(show: bool, transient: bool = False) -> Progress:
    """Bars on standard error; where that is no terminal they only count. What is printed on their console is plain text."""
    console = Console(stderr=True, quiet=not show, soft_wrap=True, markup=False, emoji=False, highlight=False)
    columns = (TextColumn("{task.description:<6}", markup=False), BarColumn(30), MofNCompleteColumn(), TimeRemainingColumn(), _Last(""))
    return Progress(*columns, console=console, transient=transient, disable=not (show and console.is_terminal))


def _lines(
    bars: Progress, show: bool | Watch, now: Callable[[], str | None], done: Callable[[], tuple[int, int]] = lambda: (0, 1)
) -> Lines:
    """Lines on standard error, or for whoever watches."""
    if isinstance(show, bool):
        return Lines(bars.console.print, LINE_SECONDS if show and bars.disable else math.inf, now)
    return Lines(lambda text: show(*done(), text), WATCH_SECONDS, now)


class Stages:
    """One stage after the other: a bar that goes when its stage is done, or what a line says of it."""

    def __init__(self, bars: Progress, unit: str = "", alone: bool = True) -> None:
        self.bars, self.unit, self.alone = bars, unit, alone
        self.count: Count | None = None
        self._task = TaskID(0)

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self.count is None or self.count.what != stage:
            self.end()
            self.count, self._task = Count(stage, total, self.unit), self.bars.add_task(stage, total=total if total > 1 else None, last="")
            if self.alone:
                self.bars.start()
        self.count.done = done
        self.bars.update(self._task, completed=done, last=self.count.speed)
        if done >= total:
            self.end()

    def end(self) -> None:
        if self.count is not None:
            self.count = None
            self.bars.remove_task(self._task)
            if self.alone:
                self.bars.stop()

    def line(self) -> str | None:
        count = self.count
        return None if count is None else count.line()


@contextmanager
def stages(show: bool | Watch = True, unit: str = "") -> Iterator[Tell]:
    """A function to be told stage, done and total: one bar after the other. A log gets plain lines, none of what is over soon."""
    bars = _bars(show is True, transient=True)
    told = Stages(bars, unit)
    with _lines(bars, show, told.line):
        try:
            yield told
        finally:
            told.end()


@contextmanager
def bar(what: str, total: int, unit: str = "items") -> Iterator[Advance]:
    """A function to be told how many of `total` were done since it was last told."""
    done = 0
    with stages(unit=unit) as tell:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            tell(what, done, total)

        tell(what, 0, total)
        yield advance


class TrainingDisplay:
    """A bar for the epochs, one for the steps and one for what is computed beside them; in a log a line an epoch, and lines between."""

    def __init__(self, bars: Progress, epochs: int, steps: int, first_epoch: int, taught: bool) -> None:
        self.bars, self.epochs, self.steps, self.taught = bars, epochs, steps, taught
        self.whole, self.last = Count("training", epochs * steps, done=first_epoch * steps), ""
        self.all = bars.add_task("epochs", total=epochs, completed=first_epoch, last="")
        self.one = bars.add_task("steps", total=steps, last="")
        self.stage = Stages(bars, alone=False)
        self.note: Callable[[str], None] = bars.console.print
        """To be told a line that stays."""

    def step(self, epoch: int, done: int, speed: float, parts: Mapping[str, float]) -> None:
        """So many steps of an epoch (counted from 0) are done, at a speed of items a second; `parts` of the last one's loss."""
        self.whole.done = epoch * self.steps + done
        if not self.last:  # whatever came before the first step is no measure of steps
            self.whole = Count("training", self.whole.total, done=self.whole.done)
        words = f"{self._loss(parts)}, {speed:,.0f} items/s"
        self.last = f"epoch {epoch + 1}/{self.epochs}, step {done}/{self.steps}: {words}"
        self.bars.update(self.one, completed=done, last=words)

    def epoch(self, line: Mapping[str, Any]) -> None:
        """An epoch is done; `line` is what metrics.jsonl holds of it."""
        number = line["epoch"] + 1
        summary = ", ".join(
            [self._loss(line["loss"]), f"{line['items_per_second']:,.0f} items/s"]
            + [f"{part} R@1 {100 * line[part]['recall@1']:.2f} %" for part in ("validation", "test") if part in line]
        )
        self.bars.update(self.all, completed=number, last=summary)
        self.bars.reset(self.one)
        if self.bars.disable:
            self.note(f"epoch {number}/{self.epochs}: {summary}, {self.whole.left}")

    def line(self) -> str | None:
        """What stands for now between two epochs' lines."""
        return self.stage.line() or (f"{self.last}, {self.whole.left}" if self.last else None)

    def _loss(self, parts: Mapping[str, float]) -> str:
        """Its parts; of one that nobody's teaching is part of, the one number."""
        return ", ".join(f"{name} {value:.4g}" for name, value in (parts if self.taught else {"loss": parts["base"]}).items())


@contextmanager
def training_display(show: bool | Watch, epochs: int, steps: int, first_epoch: int = 0, taught: bool = True) -> Iterator[TrainingDisplay]:
    """What a training is told to show; nothing unless `show`. `taught` says whether anything is, beside the labels."""
    bars = _bars(show is True)
    display = TrainingDisplay(bars, epochs, steps, first_epoch, taught)
    with _lines(bars, show, display.line, lambda: (display.whole.done, display.whole.total)) as lines:
        if bars.disable:
            display.note = lines.say
        with nullcontext() if bars.disable else bars:
            yield display


class RunsDisplay:
    """Trainings that run side by side: a bar each; in a log a line each, every ten seconds."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self._runs: dict[str, tuple[TaskID, str]] = {}

    def tell(self, run: str, done: int, total: int, text: str) -> None:
        """How far a run is, and what stands for it now."""
        task, _ = self._runs.get(run) or (self.bars.add_task(run, total=None, last=""), "")
        self._runs[run] = task, text
        self.bars.update(task, completed=done, total=total if total > 1 else None, last=text)

    def end(self, run: str) -> None:
        if run in self._runs:
            self.bars.remove_task(self._runs.pop(run)[0])

    def line(self) -> str | None:
        return "\n".join(f"{run}: {text}" for run, (_, text) in list(self._runs.items())) or None


@contextmanager
def runs_display(show: bool) -> Iterator[RunsDisplay]:
    """What trainings in other processes are told to show."""
    bars = _bars(show)
    display = RunsDisplay(bars)
    with _lines(bars, show, display.line), nullcontext() if bars.disable else bars:
        yield display
