"""The model of an index at work: what runs it on how many items."""

from __future__ import annotations

from torch import nn

from obdsd.data import Part
from obdsd.data.collection import loader_workers
from obdsd.errors import explain_missing
from obdsd.models import Embedder
from obdsd.models.devices import choose_device
from obdsd.models.inference import for_inference
from obdsd.search.how import FEW, ONNX, TORCH, Pass


def check_fits(how: Pass, model: str) -> None:
    """Refuse at once, before anything is written, an engine that is not installed, or the file of another model than this digest's."""
    if how.engine != TORCH:
        with explain_missing():
            from obdsd.models.onnx_engine import content_of
        if how.engine != ONNX:
            content_of(how.engine, model)


def at_work(embedder: Embedder, items: int, how: Pass) -> nn.Module:
    """The model where it runs, made faster for all but a few items."""
    if how.engine == TORCH:
        model = embedder.to(choose_device(how.device))
        return model if items < FEW else for_inference(model)
    from obdsd.models.onnx_engine import onnx_model

    how.progress("preparing the model", 0, 1)
    by_onnxruntime = onnx_model(embedder, how.engine)
    how.progress("preparing the model", 1, 1)
    return by_onnxruntime


def workers_for(part: Part, how: Pass) -> int:
    """Processes that read the items; none for a few."""
    return 0 if len(part) < FEW else loader_workers(how.workers, part)
