"""Readers met with damaged files: they read them or refuse them in one line. `make test-fuzz` tries many more, under a bound on memory."""

import os
import re

from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st

from obdsd.errors import InputError

SLOW = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
fuzz = settings(max_examples=int(os.environ.get("OBDSD_FUZZ", "60")), suppress_health_check=SLOW)

NUMBERS = [0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]
FIELDS = [str(number) for number in (-1, 10**12, 2**63, 10**400)] + [
    *("", " ", "nan", "1e999", "-0.0", "None", "true", "[]", "{}", "..", "/", "../../x", "\0", "\n", '"', ",", "#", "=1+1"),
    *("\x1b[2J", "\x85", "\u2028", "\ufeff", "é", "💥", "O", "|O8", "x" * 5000),
]
WORD = re.compile(rb"[\w.+-]+")


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """A valid file with one to four places spoilt: a bit flipped, a stretch lost, doubled or overwritten, a word or a number replaced."""
    spoilt = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(spoilt)))
        end = min(len(spoilt), start + draw(st.integers(1, 64)))
        match draw(st.sampled_from(["bit", "cut", "drop", "double", "bytes", "number", "word", "word"])):
            case "bit":
                spoilt[start : start + 1] = bytes(byte ^ 1 << draw(st.integers(0, 7)) for byte in spoilt[start : start + 1])
            case "cut":
                del spoilt[start:]
            case "drop":
                del spoilt[start:end]
            case "double":
                spoilt[start:start] = spoilt[start:end]
            case "bytes":
                spoilt[start:end] = draw(st.binary(max_size=8))
            case "number":
                width = draw(st.sampled_from([1, 2, 4, 8]))
                number = draw(st.sampled_from(NUMBERS)) % 256**width
                spoilt[start : start + width] = number.to_bytes(width, draw(st.sampled_from(["little", "big"])))
            case "word":
                found = WORD.search(spoilt, start)
                if found:
                    spoilt[slice(*found.span())] = draw(st.sampled_from(FIELDS)).encode()
    return bytes(spoilt)


def only_refuses(read, path) -> bool:
    """A reader may read or refuse in one line; nothing else may come out."""
    try:
        read(path)
    except InputError as refusal:
        event("refused")
        return len(str(refusal).splitlines()) == 1
    event("read")
    return True
