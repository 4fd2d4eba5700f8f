"""Deep metric learning with self-distillation and diffusion on batch manifolds (OBD-SD).

The names below load on first use, so that `import obdsd` costs nothing and pulls in nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `__getattr__` below resolves, for type checkers and editors
    from obdsd import data, evaluation, experiments, method, models, objectives, presets, report, search, training
    from obdsd.catalogue import register
    from obdsd.errors import InputError
    from obdsd.evaluation.metrics import Metric, register_metric
    from obdsd.method.class_guidance import PLG
    from obdsd.method.class_mates import ClassMates
    from obdsd.method.diffusion import diffuse, softmax_transition, symmetric_transition
    from obdsd.method.distillation import SelfDistillation
    from obdsd.method.global_diffusion import GlobalDiffusion
    from obdsd.method.kernels import GlobalKernel, Kernel
    from obdsd.method.matching import KL, Matching
    from obdsd.method.regression import Regression
    from obdsd.method.relations import PKT, RCL, RKD
    from obdsd.method.targets import AffineScores, Balanced, BatchDiffusion, MeanMix, PairwiseTargets, ProxyDiffusion, Targets, UniformMix
    from obdsd.method.teachers import (
        BornAgainTeacher,
        EMATeacher,
        FrozenTeacher,
        MemoryTeacher,
        PreviousEpochTeacher,
        Teacher,
        TeacherBatch,
    )
    from obdsd.objectives.objective import Objective
    from obdsd.objectives.system import System

__version__ = "0.1.0"

__all__ = [
    "KL", "PKT", "PLG", "RCL", "RKD", "AffineScores", "Balanced", "BatchDiffusion", "BornAgainTeacher", "ClassMates", "EMATeacher",
    "FrozenTeacher", "GlobalDiffusion", "GlobalKernel", "InputError", "Kernel", "Matching", "MeanMix", "MemoryTeacher", "Metric",
    "Objective", "PairwiseTargets", "PreviousEpochTeacher", "ProxyDiffusion", "Regression", "SelfDistillation", "System", "Targets",
    "Teacher", "TeacherBatch", "UniformMix", "__version__", "data", "diffuse", "evaluation", "experiments", "method", "models",
    "objectives", "presets", "register", "register_metric", "report", "search", "softmax_transition", "symmetric_transition", "training",
]  # fmt: skip
_NAMES = {
    "catalogue": "register",
    "errors": "InputError",
    "evaluation.metrics": "Metric register_metric",
    "method.class_mates": "ClassMates",
    "method.diffusion": "diffuse softmax_transition symmetric_transition",
    "method.distillation": "SelfDistillation",
    "method.global_diffusion": "GlobalDiffusion",
    "method.class_guidance": "PLG",
    "method.kernels": "GlobalKernel Kernel",
    "method.matching": "KL Matching",
    "method.regression": "Regression",
    "method.relations": "PKT RCL RKD",
    "method.targets": "AffineScores Balanced BatchDiffusion MeanMix PairwiseTargets ProxyDiffusion Targets UniformMix",
    "method.teachers": "BornAgainTeacher EMATeacher FrozenTeacher MemoryTeacher PreviousEpochTeacher Teacher TeacherBatch",
    "objectives.objective": "Objective",
    "objectives.system": "System",
}
_ROOMS = ("data", "evaluation", "experiments", "method", "models", "objectives", "presets", "report", "search", "training")
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"obdsd.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"obdsd.{_HOME[name]}"), name)
    raise AttributeError(f"module 'obdsd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
