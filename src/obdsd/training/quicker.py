"""A network that teaches answers sooner: BatchNorm folded, channels last, in bfloat16 where its rows stay what they were."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from obdsd.models.inference import for_inference

PROBES = 16  # images on which it is tried
LEAST_COSINE = 0.9999
"""Of a teacher's rows in bfloat16 to those in float32."""


@dataclass(frozen=True)
class Answers:
    """How a teacher computes, and the least cosine of its rows to those of the network as it is, on a few images."""

    precision: str
    cosine: float

    def __str__(self) -> str:
        remedy = "; --teacher-precision 32 keeps float32" if self.precision == "bf16" else ""
        kind = {"bf16": "bfloat16", "32": "float32"}[self.precision]
        return f"the teacher computes in {kind}, BatchNorm folded (cosine to float32 {self.cosine:.6f} or more on {PROBES} images){remedy}"


class InBfloat16(nn.Module):
    """A model whose numbers are bfloat16, for inputs of any precision."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.to(torch.bfloat16)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.model(inputs.to(torch.bfloat16))


def in_float32(network: nn.Module) -> nn.Module:
    return for_inference(network)


def in_bfloat16(network: nn.Module) -> nn.Module:
    return InBfloat16(for_inference(network))


WAYS = {"bf16": in_bfloat16, "32": in_float32}


@torch.no_grad()
def best_way(network: nn.Module, images: Tensor, asked: str) -> Answers:
    """The fastest of the ways in which a network may answer: the one that was asked for, or that keeps its rows."""
    rows, answers = network(images), Answers("32", 1.0)
    for precision in ("bf16", "32") if asked == "auto" and computes_bfloat16(images.device) else (asked.replace("auto", "32"),):
        quick = WAYS[precision](network)(images)
        answers = Answers(precision, float((rows * quick).sum(dim=1).min()))
        if answers.cosine >= LEAST_COSINE:
            break
    return answers


def computes_bfloat16(device: torch.device) -> bool:
    """Whether the processor has instructions for it, so that it is faster and not only smaller."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known = torch.cpu.get_capabilities() if device.type == "cpu" and hasattr(torch.cpu, "get_capabilities") else {}
    return any(known.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
