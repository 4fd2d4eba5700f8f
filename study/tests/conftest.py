"""Fixtures of the study's tests."""

import pytest

from study import arena, reading, records, search, tables, testing, walk
from tests.made_up import write_rows


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Records and scratch of this test alone: folders `results` and `scratch`."""
    for module in (arena, records, reading, search, testing, tables, walk):
        for name in ("RESULTS", "SCRATCH"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, tmp_path / name.lower())
    return tmp_path


@pytest.fixture
def rows(tmp_path):
    return write_rows(tmp_path / "rows.npz", 12, 8, 20)
