"""Teachers that are models of their own: the features that training starts from, and any model on disk."""

from __future__ import annotations

from typing import Any

from obdsd.errors import InputError
from obdsd.method.teachers import FrozenTeacher


def features(model: Any) -> FrozenTeacher:
    """The pretrained features that training starts from teach: an anchor."""
    if not model.knows_something:
        raise InputError("the features know nothing before the training; use pretrained weights")
    return FrozenTeacher(model.headless())


def frozen(model: Any, source: str) -> FrozenTeacher:
    """A model on disk teaches.

    Args:
        source: A model folder or a run.
    """
    from obdsd.models.embedder import open_model  # by the library of backbones, which takes seconds to import

    teacher = open_model(source)
    if (teacher.preprocessing, teacher.architecture.features) != (model.preprocessing, model.architecture.features):
        raise InputError(f"does not take the inputs of backbone={model.architecture.backbone}; train one like it")
    return FrozenTeacher(teacher)
