"""Deep metric learning with self-distillation and diffusion on batch manifolds (OBD-SD).

The names below load on first use, so that `import obdsd` costs nothing and pulls in nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `__getattr__` below resolves, for type checkers and editors
    from obdsd import objectives as objectives
    from obdsd.catalogue import register as register
    from obdsd.errors import InputError as InputError
    from obdsd.evaluation.metrics import Metric as Metric
    from obdsd.evaluation.metrics import register_metric as register_metric
    from obdsd.method.diffusion import diffuse as diffuse
    from obdsd.method.diffusion import softmax_transition as softmax_transition
    from obdsd.method.diffusion import symmetric_transition as symmetric_transition
    from obdsd.method.distillation import SelfDistillation as SelfDistillation
    from obdsd.method.global_diffusion import GlobalDiffusion as GlobalDiffusion
    from obdsd.method.proxy_diffusion import ProxyDiffusion as ProxyDiffusion
    from obdsd.method.targets import Balanced as Balanced
    from obdsd.method.targets import BatchDiffusion as BatchDiffusion
    from obdsd.method.targets import MeanMix as MeanMix
    from obdsd.method.targets import PairwiseTargets as PairwiseTargets
    from obdsd.method.targets import Targets as Targets
    from obdsd.method.targets import UniformMix as UniformMix
    from obdsd.method.teachers import BornAgainTeacher as BornAgainTeacher
    from obdsd.method.teachers import EMATeacher as EMATeacher
    from obdsd.method.teachers import FrozenTeacher as FrozenTeacher
    from obdsd.method.teachers import MemoryTeacher as MemoryTeacher
    from obdsd.method.teachers import PreviousEpochTeacher as PreviousEpochTeacher
    from obdsd.method.teachers import Teacher as Teacher
    from obdsd.method.teachers import TeacherBatch as TeacherBatch
    from obdsd.objectives.objective import Objective as Objective
    from obdsd.objectives.system import System as System

__version__ = "0.1.0"

_NAMES = {
    "catalogue": "register",
    "errors": "InputError",
    "evaluation.metrics": "Metric register_metric",
    "method.diffusion": "diffuse softmax_transition symmetric_transition",
    "method.distillation": "SelfDistillation",
    "method.global_diffusion": "GlobalDiffusion",
    "method.proxy_diffusion": "ProxyDiffusion",
    "method.targets": "Balanced BatchDiffusion MeanMix PairwiseTargets Targets UniformMix",
    "method.teachers": "BornAgainTeacher EMATeacher FrozenTeacher MemoryTeacher PreviousEpochTeacher Teacher TeacherBatch",
    "objectives.objective": "Objective",
    "objectives.system": "System",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
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
