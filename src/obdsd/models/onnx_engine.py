"""An exported model at work: onnxruntime in the place of torch, with the same rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.files import check_file
from obdsd.models.agreement import check_cosine, least_cosine
from obdsd.models.embedder import Embedder
from obdsd.models.export import exported
from obdsd.models.inference import for_inference

SEVERE = 3  # onnxruntime's number for errors; its warnings are about its own optimisation
EXPORT = "obdsd export MODEL --out FILE.onnx"


class OnnxModel(nn.Module):
    """What an ONNX file makes of a batch, on the CPU.

    Args:
        content: The file's.
        source: What it is called in messages.
        truth: The model itself: it is given the first batch, too, and rows that differ are refused.
    """

    def __init__(self, content: bytes, source: str, truth: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = SEVERE
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # processes that read images want the cores
        try:
            self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as failure:  # of a dozen kinds
            reason = " ".join(str(failure).split())[:200]
            raise InputError(f"{source}: onnxruntime cannot open it ({reason}); write it anew: {EXPORT}") from failure
        self.source, self.truth = source, truth

    def forward(self, x: Tensor) -> Tensor:
        (given,) = self.session.get_inputs()
        (rows,) = self.session.run(None, {given.name: x.numpy()})
        if self.truth is not None:
            check_cosine(self.source, least_cosine(self.truth(x).numpy(), rows))
            self.truth = None
        return torch.from_numpy(rows)


def onnx_model(embedder: Embedder, engine: str) -> OnnxModel:
    """The embedder run by onnxruntime: exported now (`onnx`), or from a file of this very model."""
    truth = for_inference(embedder).forward
    if engine == "onnx":
        return OnnxModel(exported(embedder), "engine=onnx", truth)
    return OnnxModel(content_of(engine, embedder.digest()), engine, truth)


def content_of(file: str, model: str) -> bytes:
    """What a file holds, if it was written by `obdsd export` of the model with this digest, and takes what the model takes."""
    path = Path(file).expanduser()
    check_file(path)
    content = path.read_bytes()
    about = OnnxModel(content, file).session.get_modelmeta().custom_metadata_map
    if not {"obdsd", "model", "backbone", "dim", "takes"} <= about.keys():
        raise InputError(f"{file}: was not written by obdsd export, nobody knows of which model it is; write one: {EXPORT}")
    if about["model"] != model:
        other = f"{about['backbone']}, {about['dim']} numbers a row, weights or preprocessing of its own"
        raise InputError(f"{file}: is of another model ({other}); write one of this model: {EXPORT}")
    if about["takes"] == "pixels":
        raise InputError(f"{file}: takes pixels; write one without --with-preprocessing: {EXPORT}")
    return content
