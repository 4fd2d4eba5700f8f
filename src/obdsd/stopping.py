"""How a command ends before its end: asked by SIGTERM or Ctrl-C. A training finishes its step and writes its state first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from obdsd.errors import Terminated

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """While its `with` block runs, a signal raises `Terminated` or `KeyboardInterrupt`: at once, or where it is `deferred`, when asked for.

    A second Ctrl-C does not wait. Outside the main thread, where Python delivers no signals, nothing changes.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._waits = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        again = self.asked == number == signal.SIGINT
        self.asked = number
        if again or not self._waits:
            self.go()

    def go(self) -> NoReturn:
        raise KeyboardInterrupt if self.asked == signal.SIGINT else Terminated

    @contextmanager
    def deferred(self, waits: bool = True) -> Iterator[None]:
        """A block that a signal does not break: it looks at `asked` where it can end, and goes. With False, one that it breaks again."""
        before, self._waits = self._waits, waits
        try:
            if self.asked is not None and not waits:
                self.go()
            yield
        finally:
            self._waits = before
