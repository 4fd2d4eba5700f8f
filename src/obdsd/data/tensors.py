"""Tensors from files that nobody vouches for: `.safetensors`, and `.pt` without any of the code that it may hold."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.data.tables import check_inflated
from obdsd.errors import InputError
from obdsd.files import check_file

PLAIN = (str, int, float)  # what a list may hold


def read_tensors(path: Path, choose: Callable[[list[str]], Sequence[str]]) -> dict[str, NDArray[Any]]:
    """Of a file of named tensors those that `choose` picks, as arrays. One tensor alone is called `embeddings`."""
    check_file(path)
    try:
        if path.suffix.lower() == ".safetensors":
            return _safetensors(path, choose)
        content = _load(path)
        named = {str(name): value for name, value in content.items()} if isinstance(content, Mapping) else {"embeddings": content}
        return {name: _array(path, name, named[name]) for name in choose(list(named))}
    except InputError:
        raise
    except Exception as fault:  # damage makes torch raise errors of any kind
        reason = " ".join(str(fault).split())[:120]
        raise InputError(f"{path}: cannot be read as tensors without executing code ({reason}); save plain tensors") from fault


def _safetensors(path: Path, choose: Callable[[list[str]], Sequence[str]]) -> dict[str, NDArray[Any]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return {name: _array(path, name, file.get_tensor(name)) for name in choose(list(file.keys()))}


def _load(path: Path) -> Any:
    import torch

    if not zipfile.is_zipfile(path):
        raise InputError(f"{path}: is no file of torch.save, or one of a torch before 1.6; save it again")
    with zipfile.ZipFile(path) as archive:
        check_inflated(path, sum(member.file_size for member in archive.infolist()))
    return torch.load(path, "cpu", weights_only=True)


def _array(path: Path, name: str, value: Any) -> NDArray[Any]:
    """A tensor, or a list of texts or numbers, as an array."""
    import torch

    if isinstance(value, (list, tuple)) and all(isinstance(each, PLAIN) for each in value):
        check_inflated(path, 4 * len(value) * max((len(str(each)) for each in set(value)), default=0))  # all as long as the longest
        return np.asarray(value)
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_meta or value.is_quantized or value.is_complex():
        raise InputError(f"{path}: {name} is no dense tensor of real numbers ({type(value).__name__}); save it as one")
    check_inflated(path, value.numel() * value.element_size())  # a short tensor may be spread over any shape
    return (value.float() if value.is_floating_point() else value).detach().numpy()
