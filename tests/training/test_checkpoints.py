"""Checkpoints as files: damage is told from content, the one before is there, and nothing in them is executed."""

import hashlib
import io
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


def test_a_damaged_checkpoint_never_takes_the_place_of_the_whole_one(kept, full_disk):
    """A run goes on from the one before, and its next checkpoint cannot be written."""
    damage(kept.last, 0.5)
    kept.read()
    with pytest.raises(InputError, match="cannot be written"):
        kept.write({"step": 3})
    assert Checkpoints(kept.folder).read()[0]["step"] == 1


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


@pytest.mark.parametrize("content", [[1, 2], torch.zeros(3), None, "text"])
def test_a_checkpoint_that_holds_something_else(tmp_path, content):
    buffer = io.BytesIO()
    torch.save(content, buffer)
    checksum = hashlib.blake2b(buffer.getvalue(), digest_size=32).digest()
    (tmp_path / "last.pt").write_bytes(buffer.getvalue() + checksum)
    with pytest.raises(InputError, match=rf"is damaged or no checkpoint \(it holds a {type(content).__name__}\); begin a new run"):
        read_state(tmp_path / "last.pt")


def test_a_checkpoint_of_another_version(tmp_path):
    for number, remedy in ((0, "begin a new run"), (99, "update obdsd")):
        write_state(tmp_path / "last.pt", {"format": number})
        with pytest.raises(InputError, match=rf"is a checkpoint of another version of obdsd \(format {number}, not 1\); {remedy}$"):
            read_state(tmp_path / "last.pt")


@pytest.mark.parametrize("name", ["best-3.pt", "best.pt"])  # the second is of an earlier version
def test_the_best_model_must_be_that_of_the_best_epoch(kept, name):
    write_state(kept.folder / name, {"epoch": 3, "model": {"weight": torch.ones(2)}})
    assert kept.read_best(3)["weight"].tolist() == [1.0, 1.0]
    write_state(kept.folder / name, {"epoch": 7, "model": {"weight": torch.ones(2)}})
    with pytest.raises(InputError, match=rf"{name}: is of epoch 8, the best was 4; begin a new run"):
        kept.read_best(3)
    write_state(kept.folder / name, {"epoch": 3, "model": [1]})
    with pytest.raises(InputError, match=rf"{name}: must hold named tensors only"):
        kept.read_best(3)


def test_a_best_model_stays_as_long_as_a_checkpoint_knows_it(kept):
    """Whichever of the two checkpoints a run goes on from, its best is there; others go."""

    def there():
        return sorted(path.name for path in kept.folder.glob("best*.pt"))

    for epoch, best, left in ((0, 0, [0]), (1, 1, [0, 1]), (2, 1, [1]), (3, 3, [1, 3]), (4, 4, [3, 4])):
        if epoch == best:
            kept.write_best(epoch, {"weight": torch.ones(2)})
        kept.write({"place": {"epoch": epoch, "best_epoch": best}, "system": {}})
        assert there() == [f"best-{epoch}.pt" for epoch in left]
    kept.write_best(5, {"weight": torch.ones(2)})  # and then it is killed
    again = Checkpoints(kept.folder)
    again.read()
    again.write({"place": {"epoch": 5, "best_epoch": 4}, "system": {}})
    assert there() == ["best-4.pt"]
    again.tidy()
    assert there() == []
