"""One test for any table of calls that must be refused."""

import re
from collections.abc import Callable
from typing import Any

import pytest


def refused(cases: list[tuple[Callable[[], Any], str]]) -> Callable[..., None]:
    """A test: each call is refused with one line that holds the message, as users see it, without the shape checks of the tests."""

    @pytest.mark.usefixtures("as_shipped")
    @pytest.mark.parametrize(("call", "message"), cases, ids=[message[:50] for _, message in cases])
    def test(call, message):
        with pytest.raises(ValueError, match=re.escape(message)) as refusal:
            call()
        assert "\n" not in str(refusal.value)

    return test
