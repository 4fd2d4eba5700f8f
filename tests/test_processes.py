import sys

import pytest

from tests.started import python

TAKE_AND_GIVE_BACK = """
import resource, sys
import numpy as np
from obdsd.processes import keep_memory
if sys.argv[1] == "kept":
    keep_memory()
np.ones(8_000_000)  # 64 MB; from the second time on, memory that is kept is there already
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    np.ones(8_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*words) -> int:
    with python("-c", TAKE_AND_GIVE_BACK, *words) as process:
        return int(process.communicate()[0])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_memory_that_was_given_back_is_not_faulted_in_again(monkeypatch):
    assert faults("usual") > 100  # pages may be huge
    assert faults("kept") < 20
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")  # the user knows better
    assert faults("kept") > 100
