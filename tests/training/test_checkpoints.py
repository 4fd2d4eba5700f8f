"""Checkpoints as files: damage is told from content, the one before is there, and nothing in them is executed."""

import os
from pathlib import Path

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


def flip_a_bit(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def test_the_newest_is_read(kept):
    state, damage = kept.read()
    assert (state["step"], damage) == (2, None)
    assert state["weight"].tolist() == [2.0] * 64


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.7, 0.999])
def test_a_flipped_bit_anywhere_is_damage_and_the_one_before_is_read(kept, share):
    flip_a_bit(kept.last, int(share * kept.last.stat().st_size))
    state, damage = kept.read()
    assert state["step"] == 1
    assert damage == f"{kept.last}: is damaged or no checkpoint (its checksum does not fit); going on from before.pt, which is whole"


def test_where_both_are_damaged_there_is_nothing_to_go_on_from(kept):
    for path in (kept.last, kept.before):
        flip_a_bit(path, 100)
    with pytest.raises(InputError, match=r"last\.pt: is damaged or no checkpoint \(its checksum does not fit\); begin a new run"):
        kept.read()


class Evil:
    """Unpickled, it makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_nothing_in_a_checkpoint_is_executed(tmp_path):
    path, made = tmp_path / "evil.pt", tmp_path / "made"
    write_state(path, {"place": Evil(made)})
    with pytest.raises(InputError, match=r"evil\.pt: is damaged or no checkpoint"):
        read_state(path)
    assert not Path(made).exists()
