"""What a training shows while it runs: bars in a terminal, a line an epoch elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Display:
    """Shows nothing; the others build on it."""

    def __init__(self, epochs: int, steps: int, first_epoch: int = 0) -> None:
        self.epochs, self.steps, self.first_epoch = epochs, steps, first_epoch

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def say(self, text: str) -> None:
        """A line that stays."""

    def step(self, epoch: int, items: int, parts: Mapping[str, float]) -> None:
        """A batch of `items` is done; `parts` of the loss."""

    def epoch(self, line: Mapping[str, Any]) -> None:
        """An epoch is done; `line` is what metrics.jsonl holds of it."""


class Lines(Display):
    """A line an epoch on standard error, for logs."""

    def __init__(self, epochs: int, steps: int, first_epoch: int = 0) -> None:
        super().__init__(epochs, steps, first_epoch)
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def epoch(self, line: Mapping[str, Any]) -> None:
        done = line["epoch"] + 1
        left = (time.monotonic() - self.began) / (done - self.first_epoch) * (self.epochs - done)
        self.say(f"epoch {done}/{self.epochs}: {_summary(line)}, {left:,.0f} s left")


class Bars(Display):
    """A bar for the epochs and one for the steps, with what the last of each gave."""

    def __init__(self, epochs: int, steps: int, first_epoch: int = 0) -> None:
        super().__init__(epochs, steps, first_epoch)
        columns = (
            TextColumn("{task.description:<6}"),
            BarColumn(30),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[said]}"),
        )
        self.progress = Progress(*columns, console=Console(stderr=True))
        self.all = self.progress.add_task("epochs", total=epochs, completed=first_epoch, said="")
        self.one = self.progress.add_task("steps", total=steps, said="")
        self.began, self.seen = time.monotonic(), 0

    def __enter__(self) -> Display:
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.progress.stop()

    def say(self, text: str) -> None:
        self.progress.console.print(text, highlight=False, markup=False)

    def step(self, epoch: int, items: int, parts: Mapping[str, float]) -> None:
        self.seen += items
        speed = self.seen / (time.monotonic() - self.began)
        self.progress.advance(self.one)
        self.progress.update(self.one, said=f"{_parts(parts)}, {speed:,.0f}/s")

    def epoch(self, line: Mapping[str, Any]) -> None:
        self.progress.update(self.all, completed=line["epoch"] + 1, said=_summary(line))
        self.progress.reset(self.one)
        self.began, self.seen = time.monotonic(), 0


def display_for(show: bool) -> type[Display]:
    if not show:
        return Display
    return Bars if Console(stderr=True).is_terminal else Lines


def _parts(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in parts.items())


def _summary(line: Mapping[str, Any]) -> str:
    words = [_parts(line["loss"]), f"{line['items_per_second']:,.0f}/s"]
    for part in ("validation", "test"):
        if part in line:
            name, value = next(iter(line[part].items()))
            words.append(f"{part} R@{name.removeprefix('recall@')} {100 * value:.2f} %")
    return ", ".join(words)
