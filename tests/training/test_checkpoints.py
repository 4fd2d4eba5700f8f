"""Checkpoints as files: damage is told from content, the one before is there, and nothing in them is executed."""

import os

import pytest
import torch

from obdsd.errors import InputError
from obdsd.training.checkpoints import Checkpoints, read_state, write_state


@pytest.fixture
def kept(tmp_path):
    """The second checkpoint of a run, and the first, which is the one before."""
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for step in (1, 2):
        checkpoints.write({"step": step, "weight": torch.full((64,), float(step))})
    return checkpoints


def damage(path, share):
    """Flip a bit there; with 1, cut the file off; with 0, leave nothing."""
    content = bytearray(path.read_bytes())
    if 0 < share < 1:
        content[int(share * len(content))] ^= 4
    path.write_bytes(content if 0 < share < 1 else content[: share * (len(content) - 1)])


def test_the_newest_is_read(kept):
    state, fault = kept.read()
    assert (state["step"], fault, state["weight"].tolist()) == (2, None, [2.0] * 64)


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.5, 0.7, 0.999, 1])
def test_damage_anywhere_is_found_and_the_one_before_is_read(kept, share):
    damage(kept.last, share)
    state, fault = kept.read()
    assert state["step"] == 1
    assert fault == f"{kept.last}: is damaged or no checkpoint (its checksum does not fit); going on from before.pt, which is whole"
    damage(kept.before, share)
    with pytest.raises(InputError, match=r"last\.pt: is damaged or no checkpoint \(its checksum does not fit\); begin a new run"):
        kept.read()


class Evil:
    """Unpickled, it makes a folder."""

    def __reduce__(self):
        return os.mkdir, ("made",)


def test_nothing_in_a_checkpoint_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_state(tmp_path / "evil.pt", {"place": Evil()})
    with pytest.raises(InputError, match=r"evil\.pt: is damaged or no checkpoint"):
        read_state(tmp_path / "evil.pt")
    assert not (tmp_path / "made").exists()
