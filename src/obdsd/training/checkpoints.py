"""Checkpoints: the newest and the one before it, each whole or not there, each with a checksum that tells damage from content."""

from __future__ import annotations

import hashlib
import io
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obdsd.errors import InputError
from obdsd.files import check_format, replacing

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
_CHECKSUM = 32  # bytes at the file's end; torch.load and unzip do not mind them


def write_state(path: Path, state: dict[str, Any]) -> None:
    import torch

    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    with replacing(path) as file:
        file.write(buffer.getbuffer())
        file.write(_checksum(buffer.getbuffer()))


def read_state(path: Path) -> dict[str, Any]:
    """A checkpoint; nothing in it is executed."""
    import torch

    try:
        content = memoryview(path.read_bytes())
        if content[-_CHECKSUM:] != _checksum(content[:-_CHECKSUM]):
            raise ValueError("its checksum does not fit")
        state = torch.load(io.BytesIO(content[:-_CHECKSUM]), map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise ValueError(f"it holds a {type(state).__name__}")
    except Exception as damage:  # torch.load has no error of its own for a damaged file: anything may come
        reason = " ".join(str(damage).split())[:120] or type(damage).__name__
        raise InputError(f"{path}: is damaged or no checkpoint ({reason}); begin a new run") from damage
    check_format(path, "checkpoint", state, FORMAT, "begin a new run")
    return state


def _checksum(content: memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=_CHECKSUM).digest()


def _best_epoch(state: dict[str, Any]) -> int:
    """The one that a training knows, -1 if there is none."""
    place = state.get("place")
    return place.get("best_epoch", -1) if isinstance(place, dict) else -1


class Checkpoints:
    """`last.pt` and `before.pt`: while one is written, and if it turns out to be damaged, the other is there. `best-N.pt` is the model of
    epoch N, for each epoch that one of the two calls the best."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last, self.before = folder / "last.pt", folder / "before.pt"
        self._last_is_whole = True
        self._best_of_last = -1  # the best epoch that the newest checkpoint knows

    def best(self, epoch: int) -> Path:
        return self.folder / f"best-{epoch}.pt"

    def write(self, state: dict[str, Any]) -> None:
        if self.last.exists() and self._last_is_whole:
            os.replace(self.last, self.before)
        write_state(self.last, state)
        self._last_is_whole = True
        before, self._best_of_last = self._best_of_last, _best_epoch(state)
        for path in {*self.folder.glob("best-*.pt")} - {self.best(before), self.best(self._best_of_last)}:
            path.unlink()

    def write_best(self, epoch: int, model: dict[str, Tensor]) -> None:
        """The model of an epoch that the next checkpoint will call the best. If none is written, the one before still has its own."""
        write_state(self.best(epoch), {"epoch": epoch, "model": model})

    def read_best(self, epoch: int) -> dict[str, Tensor]:
        """The model of the best epoch, which must be this one."""
        from obdsd.models.weights import named_tensors

        path = self.best(epoch) if self.best(epoch).exists() else self.folder / "best.pt"  # as an earlier version called it
        state = read_state(path)
        if state.get("epoch") != epoch:
            own = state.get("epoch")
            number = own + 1 if isinstance(own, int) else own
            raise InputError(f"{path}: is of epoch {number}, the best was {epoch + 1}; begin a new run")
        return named_tensors(state.get("model"), path)

    def tidy(self) -> None:
        """Leave of a finished run who taught in its last epoch, which its report shows: the one before, without the optimiser."""
        with suppress(InputError):
            state = read_state(self.before if self.before.exists() else self.last)
            write_state(self.before, {name: state[name] for name in ("place", "system")})
        for path in (self.last, *self.folder.glob("best*.pt")):
            path.unlink(missing_ok=True)

    def any(self) -> bool:
        return self.last.exists() or self.before.exists()

    def read(self) -> tuple[dict[str, Any] | None, str | None]:
        """The newest state that is whole, or None if none was ever written; and what is wrong with a newer one."""
        damage: InputError | None = None
        for path in (self.last, self.before):
            if path.exists():
                try:
                    state = read_state(path)
                except InputError as fault:
                    damage = damage or fault
                    continue
                self._last_is_whole, self._best_of_last = path == self.last, _best_epoch(state)
                return state, None if damage is None else f"{str(damage).rpartition(';')[0]}; going on from {path.name}, which is whole"
        if damage is not None:
            raise damage
        return None, None
