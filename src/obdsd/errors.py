"""The error that stands for a caller's mistake, and an end before the end that can be gone on from."""

from __future__ import annotations


class InputError(ValueError):
    """A value that the caller can mend; the message names the field, the rule, the value and the remedy on one line.

    Library users catch it as a `ValueError`; the command line prints it as one line and exits with code 2.
    """


class Terminated(SystemExit):
    """The process was asked to end, or lost the others of its training; what it had is kept. Exit code 75: try again later."""

    CODE = 75

    def __init__(self, reason: str = "") -> None:
        super().__init__(self.CODE)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason

    def __reduce__(self) -> tuple[type[Terminated], tuple[str]]:
        return Terminated, (self.reason,)


class FinishedError(InputError):
    """A run that was to go on is complete."""
