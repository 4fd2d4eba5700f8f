"""What people see while something runs: bars in a terminal, now and then a line elsewhere, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

LINE_SECONDS = 10.0  # between two lines where there is no terminal

Advance = Callable[[int], None]


class _Speed(TextColumn):
    """How many of the unit named a second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f} {self.text_format}/s")


@contextmanager
def _progress(show: bool, *columns: ProgressColumn, transient: bool = False) -> Iterator[Progress]:
    """Bars on standard error; where that is no terminal they only count. What is printed on their console is plain text."""
    console = Console(stderr=True, quiet=not show, soft_wrap=True, markup=False, emoji=False, highlight=False)
    progress = Progress(*columns, console=console, transient=transient, disable=not (show and console.is_terminal))
    with nullcontext() if progress.disable else progress:
        yield progress


@contextmanager
def bar(what: str, total: int, unit: str = "items") -> Iterator[Advance]:
    """A function to be told how many of `total` were done since it was last told. A log gets plain lines, none if it is over soon."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), _Speed(unit), TimeRemainingColumn())
    with _progress(True, *columns, transient=True) as progress:
        progress.add_task(what, total=total)
        (task,) = progress.tasks
        last_line = 0.0

        def advance(count: int) -> None:
            nonlocal last_line
            progress.advance(task.id, count)
            seconds = task.elapsed or 0.0
            if progress.disable and task.completed and seconds - last_line >= LINE_SECONDS:
                last_line, speed = seconds, task.completed / seconds
                left = (total - task.completed) / speed
                progress.console.print(f"{what}: {task.completed:,} of {total:,}, {speed:,.0f} {unit}/s, {left:,.0f} s left")

        yield advance


@contextmanager
def stages(show: bool = True) -> Iterator[Callable[[str, int, int], None]]:
    """A function to be told stage, done and total: one bar after the other; none unless `show`."""
    if not show:
        yield lambda stage, done, total: None
        return
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


class TrainingDisplay:
    """A bar for the epochs and one for the steps, with what the last of each gave; in a log a line an epoch."""

    def __init__(self, progress: Progress, epochs: int, steps: int, first_epoch: int) -> None:
        self.progress, self.first_epoch = progress, first_epoch
        self.all = progress.add_task("epochs", total=epochs, completed=first_epoch, last="")
        self.one = progress.add_task("steps", total=steps, last="")

    def note(self, text: str) -> None:
        """A line that stays."""
        self.progress.console.print(text)

    def step(self, items: int, parts: Mapping[str, float]) -> None:
        """A batch of `items` is done; `parts` of the loss."""
        self.progress.advance(self.one)
        steps = self.progress.tasks[self.one]
        self.progress.update(self.one, last=f"{_parts(parts)}, {items * steps.completed / (steps.elapsed or 1):,.0f}/s")

    def epoch(self, line: Mapping[str, Any]) -> None:
        """An epoch is done; `line` is what metrics.jsonl holds of it."""
        done, epochs = line["epoch"] + 1, self.progress.tasks[self.all]
        summary = ", ".join(
            [_parts(line["loss"]), f"{line['items_per_second']:,.0f}/s"]
            + [f"{part} R@1 {100 * line[part]['recall@1']:.2f} %" for part in ("validation", "test") if part in line]
        )
        self.progress.update(self.all, completed=done, last=summary)
        self.progress.reset(self.one)
        if self.progress.disable:
            left = (epochs.elapsed or 0) / (done - self.first_epoch) * ((epochs.total or 0) - done)
            self.note(f"epoch {done}/{epochs.total}: {summary}, {left:,.0f} s left")


@contextmanager
def training_display(show: bool, epochs: int, steps: int, first_epoch: int = 0) -> Iterator[TrainingDisplay]:
    """What a training is told to show; nothing unless `show`."""
    counts = (TextColumn("{task.description:<6}"), BarColumn(30), MofNCompleteColumn(), TimeRemainingColumn())
    with _progress(show, *counts, TextColumn("{task.fields[last]}")) as progress:
        yield TrainingDisplay(progress, epochs, steps, first_epoch)


def _parts(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in parts.items())
