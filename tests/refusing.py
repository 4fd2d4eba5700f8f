"""One test for any table of calls that must be refused."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest


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
