"""Deep metric learning with self-distillation and diffusion on batch manifolds (OBD-SD).

The names below load on first use, so that `import obdsd` costs nothing and pulls in nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `__getattr__` below resolves, for type checkers and editors
    from obdsd import objectives as objectives
    from obdsd.errors import InputError as InputError
    from obdsd.method.diffusion import diffuse as diffuse
    from obdsd.method.diffusion import softmax_transition as softmax_transition
    from obdsd.method.diffusion import symmetric_transition as symmetric_transition
    from obdsd.method.distillation import SelfDistillation as SelfDistillation
    from obdsd.method.global_diffusion import GlobalDiffusion as GlobalDiffusion
    from obdsd.method.proxy_diffusion import ProxyDiffusion as ProxyDiffusion
    from obdsd.method.targets import BatchDiffusion as BatchDiffusion
    from obdsd.method.targets import MeanMix as MeanMix
    from obdsd.method.targets import PairwiseTargets as PairwiseTargets
    from obdsd.method.targets import UniformMix as UniformMix
    from obdsd.method.teachers import EMATeacher as EMATeacher
    from obdsd.method.teachers import FrozenTeacher as FrozenTeacher
    from obdsd.method.teachers import MemoryTeacher as MemoryTeacher
    from obdsd.method.teachers import PreviousEpochTeacher as PreviousEpochTeacher
    from obdsd.method.teachers import TeacherBatch as TeacherBatch

__version__ = "0.1.0"

_HOME = {
    "InputError": "errors",
    "diffuse": "method.diffusion",
    "softmax_transition": "method.diffusion",
    "symmetric_transition": "method.diffusion",
    "SelfDistillation": "method.distillation",
    "GlobalDiffusion": "method.global_diffusion",
    "ProxyDiffusion": "method.proxy_diffusion",
    "BatchDiffusion": "method.targets",
    "MeanMix": "method.targets",
    "PairwiseTargets": "method.targets",
    "UniformMix": "method.targets",
    "EMATeacher": "method.teachers",
    "FrozenTeacher": "method.teachers",
    "MemoryTeacher": "method.teachers",
    "PreviousEpochTeacher": "method.teachers",
    "TeacherBatch": "method.teachers",
}
_ROOMS = ("objectives",)

__all__ = ["__version__", *_HOME, *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
