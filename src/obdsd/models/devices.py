"""Where a model runs."""

from __future__ import annotations

import torch

from obdsd.errors import InputError


def choose_device(name: str) -> torch.device:
    """The device of that name, tried out; `auto` is the accelerator if there is one, else the CPU."""
    if name == "auto":
        found = torch.accelerator.current_accelerator(check_available=True) if hasattr(torch, "accelerator") else None
        return found or torch.device("cpu")
    try:
        torch.zeros(1, device=name).cpu()
    except Exception as absence:  # each kind of device that is not here raises another kind of error
        reason = " ".join(str(absence).split())[:80]
        raise InputError(f"device={name!r} cannot be used ({reason}); choose cpu or leave it at auto") from absence
    return torch.device(name)
