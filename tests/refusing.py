"""One test for any table of calls that must be refused."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from obdsd import cli


def refused(cases: Iterable[tuple[Any, str]], use: Callable[[Any], Any] = lambda call: call(), regex: bool = False) -> Callable[..., None]:
    """A test: each case is a call, or a value to use, that is refused with one line that holds the message.

    It is as users see it, without the shape checks of the tests.
    """
    cases = list(cases)

    @pytest.mark.usefixtures("as_shipped")
    @pytest.mark.parametrize(("case", "message"), cases, ids=[message[:50] for _, message in cases])
    def test(case, message):
        with pytest.raises(ValueError, match=message if regex else re.escape(message)) as refusal:
            use(case)
        assert "\n" not in str(refusal.value)

    return test


def mistakes(command: str, cases: list[tuple[list[str], str]]) -> Callable[..., None]:
    """A test: with these words the command says one line that begins as given, exits with 2, and writes nothing into the folder `here`."""

    @pytest.mark.parametrize(("words", "line"), cases, ids=[" ".join(words) for words, _ in cases])
    def test(here, monkeypatch, capsys, words, line):
        monkeypatch.chdir(here)
        before = sorted(here.rglob("*"))
        assert cli.main([command, *words]) == 2
        printed, said = capsys.readouterr()
        assert printed == ""
        assert said.startswith(f"obdsd: {line}")
        assert said.count("\n") == 1
        assert sorted(here.rglob("*")) == before

    return test
