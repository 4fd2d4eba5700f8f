"""An embedder as one ONNX file, for programs without torch. What they must know of it travels in the file."""

from __future__ import annotations

import copy
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Any, Literal

import onnxscript  # noqa: F401  # torch exports by it: if it is missing, that is told here
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from obdsd.errors import InputError
from obdsd.models.embedder import Embedder

MOST_BYTES = 2**31 - 2**24  # of weights: a file of ONNX holds 2 GiB
OUTPUT = "embeddings"
BATCH = 5  # items of the example: a size that is hardly any other length of a tensor
Takes = Literal["pixels", "numbers", "rows"]
Numbers = Callable[[Tensor], Tensor]
"""Makes the numbers that a backbone expects of pixels, uint8 (b, 3, h, w) in RGB."""


def exported(embedder: Embedder, numbers: Numbers | None = None) -> bytes:
    """The content of an ONNX file that makes unit rows of a batch of any size.

    It takes what the embedder takes. With `numbers` it takes uint8 pixels as images hold them, (b, h, w, 3) in RGB, of the crop's size.
    """
    weights = sum(tensor.nbytes for tensor in embedder.state_dict().values())
    name = embedder.architecture.backbone
    if weights > MOST_BYTES:
        raise InputError(f"backbone={name} has weights of {weights / 2**30:.1f} GiB, an ONNX file holds 2; export a smaller model")
    still = copy.deepcopy(embedder).cpu().eval().requires_grad_(False)
    takes = takes_of(embedder, numbers is not None)
    model = still if numbers is None else _FromPixels(still, numbers)
    batch = example(embedder, takes)
    try:
        program = _program(model, (batch,), {}, input_names=[takes], output_names=[OUTPUT])
    except Exception as failure:  # whatever the tracing of somebody's network may raise
        where, kind = _culprit(model, (batch,), {})
        part = f"its part {where.removeprefix('embedder.')} ({kind}) cannot" if where else "each of its parts can, the whole cannot"
        raise InputError(f"backbone={name} cannot be exported to ONNX: {part} ({_reason(failure)}); use another backbone") from failure
    proto = program.model_proto
    for key, value in about(embedder, takes).items():
        proto.metadata_props.add(key=key, value=value)
    return proto.SerializeToString()


def takes_of(embedder: Embedder, with_preprocessing: bool) -> Takes:
    """What a file of the model takes: pixels, the numbers that its backbone expects, or rows."""
    if embedder.preprocessing is None:
        if with_preprocessing:
            rule = f"with_preprocessing=true is for images, backbone={embedder.architecture.backbone} takes rows"
            raise InputError(f"{rule}; leave it out")
        return "rows"
    return "pixels" if with_preprocessing else "numbers"


def example(embedder: Embedder, takes: Takes) -> Tensor:
    """A batch of what a file takes."""
    if embedder.preprocessing is None:
        return torch.zeros(BATCH, embedder.feature_dim)
    side = embedder.preprocessing.size
    return torch.zeros(BATCH, side, side, 3, dtype=torch.uint8) if takes == "pixels" else torch.zeros(BATCH, 3, side, side)


def about(embedder: Embedder, takes: Takes) -> dict[str, str]:
    """What stands in the file's metadata: which model it is, and what it expects of images."""
    known = {"obdsd": version("obdsd"), "model": embedder.digest(), "backbone": embedder.architecture.backbone}
    known |= {"takes": takes, "dim": str(embedder.dim)}
    return known if embedder.preprocessing is None else {**known, "preprocessing": json.dumps(asdict(embedder.preprocessing))}


class _FromPixels(nn.Module):
    def __init__(self, embedder: Embedder, numbers: Numbers) -> None:
        super().__init__()
        self.embedder, self.numbers = embedder, numbers

    def forward(self, pixels: Tensor) -> Tensor:
        return self.embedder(self.numbers(pixels.permute(0, 3, 1, 2)))


def _program(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], **names: Any) -> torch.onnx.ONNXProgram:
    """The model for any size of the batch."""
    free = tree_map(lambda value: {0: torch.export.Dim.DYNAMIC} if isinstance(value, Tensor) and len(value) == BATCH else None, args)
    with _quiet():
        shapes = None if kwargs else free  # parts that are looked at alone may have further inputs
        program = torch.onnx.export(model, args, kwargs=dict(kwargs), dynamo=True, dynamic_shapes=shapes, verbose=False, **names)
    assert program is not None
    return program


@contextmanager
def _quiet() -> Iterator[None]:
    """What torch's exporter warns of, logs and prints (pages if it fails) is not shown: rows are compared, and a failure has one line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _culprit(part: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], where: str = "") -> tuple[str, str]:
    """The name and the kind of the smallest part that cannot be exported; without a name, if all parts of the model can."""
    for name, (child, inputs, named) in _called(part, args, kwargs).items():
        try:
            _program(child, inputs, named)
        except Exception:
            return _culprit(child, inputs, named, f"{where}.{name}".strip("."))
    return where, type(part).__name__


def _called(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, tuple[nn.Module, tuple[Any, ...], Any]]:
    """The parts that a module itself calls, not those that its parts call, with their inputs."""
    found: dict[str, tuple[nn.Module, tuple[Any, ...], Any]] = {}
    inside: list[str] = []

    def enter(name: str, part: nn.Module, inputs: tuple[Any, ...], named: Any) -> None:
        if not inside:
            found.setdefault(name, (part, inputs, named))
        inside.append(name)

    def leave(*_: object) -> None:
        inside.pop()

    hooks = []
    for name, part in [*module.named_modules()][1:]:
        hooks.append(part.register_forward_pre_hook(partial(enter, name), with_kwargs=True))
        hooks.append(part.register_forward_hook(leave))
    with torch.no_grad():
        module(*args, **kwargs)
    for hook in hooks:
        hook.remove()
    return found


def _reason(failure: BaseException) -> str:
    """What began it."""
    while failure.__cause__ is not None:
        failure = failure.__cause__
    return " ".join(str(failure).split())[:200] or type(failure).__name__
