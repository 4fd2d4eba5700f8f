"""Teachers that are models of their own: the features that training starts from, and any model on disk."""

from __future__ import annotations

from obdsd.errors import InputError
from obdsd.method.teachers import FrozenTeacher
from obdsd.models.embedder import Embedder, open_model


def features(model: Embedder) -> FrozenTeacher:
    """The pretrained features that training starts from teach: an anchor."""
    if not model.knows_something:
        raise InputError("the features know nothing before the training; use pretrained weights")
    return FrozenTeacher(model.headless())


def frozen(model: Embedder, source: str) -> FrozenTeacher:
    """A model on disk teaches.

    Args:
        source: A model folder or a run.
    """
    teacher = open_model(source)
    if (teacher.preprocessing, teacher.architecture.features) != (model.preprocessing, model.architecture.features):
        raise InputError(f"does not take the inputs of backbone={model.architecture.backbone}; train one like it")
    return FrozenTeacher(teacher)
