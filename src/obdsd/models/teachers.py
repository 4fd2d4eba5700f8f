"""Teachers that are models of their own: the features that training starts from, and any model on disk."""

from __future__ import annotations

from typing import Any

from obdsd.catalogue import LOSSES
from obdsd.errors import InputError
from obdsd.method.teachers import BornAgainTeacher, FrozenTeacher
from obdsd.spec import Spec


def features(model: Any) -> FrozenTeacher:
    """The pretrained features that training starts from teach: an anchor."""
    if not model.knows_something:
        raise InputError("the features know nothing before the training; use pretrained weights")
    return FrozenTeacher(model.headless())


def frozen(model: Any, source: str, size: int | None = None) -> FrozenTeacher:
    """Another model teaches, such as a larger one. It sees the student's crops in its own size, prepared as it expects them.

    Args:
        source: A model folder, a run, or BACKBONE:WEIGHTS such as tf_efficientnet_lite0:offline.
        size: Side of its images, if not its own. For BACKBONE:WEIGHTS only.
    """
    from obdsd.models.embedder import open_model  # by the library of backbones, which takes seconds to import

    teacher = open_model(source, size=size)
    if (teacher.preprocessing is None, teacher.architecture.features) != (model.preprocessing is None, model.architecture.features):
        remedy = "give a model for the same data, or its embeddings of them: embeddings(FILE)"
        raise InputError(f"does not take the inputs of backbone={model.architecture.backbone}; {remedy}")
    return FrozenTeacher(teacher, preprocessing=None if teacher.preprocessing == model.preprocessing else teacher.preprocessing)


class SelfTransferTeacher(BornAgainTeacher):
    """A complete first training of the same model with another loss teaches (self-transfer, as of RCL); all else is as in the second.

    Args:
        loss: The loss of the first training, such as proxy-anchor.
    """

    knows_proxies = False  # the student has another loss, if any

    def __init__(self, model: Any, loss: Spec) -> None:
        if LOSSES.checked(loss).name == "none":
            raise InputError("loss=none leaves the first training nothing to learn; try proxy-anchor")
        super().__init__(model)
