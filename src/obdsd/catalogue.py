"""What there is, by name: a line for each part, with where it lives. `register` adds parts from outside. Imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from obdsd.errors import InputError
from obdsd.parts import Table, suggestion

LOSSES = Table(
    "loss",
    {
        "multi-similarity": "obdsd.objectives.multi_similarity:multi_similarity",
        "margin": "obdsd.objectives.margin:margin",
        "r-margin": "obdsd.objectives.margin:r_margin",
        "proxy-anchor": "obdsd.objectives.proxy_anchor:proxy_anchor",
        "proxy-nca": "obdsd.objectives.proxy_nca:proxy_nca",
        "soft-triple": "obdsd.objectives.soft_triple:soft_triple",
        "nt-xent": "obdsd.objectives.nt_xent:nt_xent",
        "supcon": "obdsd.objectives.supcon:supcon",
        "recall-at-k": "obdsd.objectives.recall_at_k:recall_at_k",
        "contextual": "obdsd.objectives.contextual:contextual",
        "mean-field": "obdsd.objectives.mean_field:mean_field",
        "epshn": "obdsd.objectives.easy_positive:epshn",
        "proxy-gml": "obdsd.objectives.proxy_gml:proxy_gml",
        "rankmi": "obdsd.objectives.rank_mi:rankmi",
        "norm-softmax": "obdsd.objectives.norm_softmax:norm_softmax",
        "none": "obdsd.objectives.no_loss:NoLoss",
        "pml": "obdsd.objectives.pml:pml",
    },
    context=("num_classes", "dim", "seed"),
)
TEACHERS = Table(
    "teacher",
    {
        "none": "obdsd.method.teachers:NoTeacher",
        "previous-epoch": "obdsd.method.teachers:PreviousEpochTeacher",
        "ema": "obdsd.method.teachers:EMATeacher",
        "memory": "obdsd.method.teachers:MemoryTeacher",
        "born-again": "obdsd.method.teachers:BornAgainTeacher",
        "self-transfer": "obdsd.models.teachers:SelfTransferTeacher",
        "features": "obdsd.models.teachers:features",
        "frozen": "obdsd.models.teachers:frozen",
        "embeddings": "obdsd.data.teachers:embeddings",
        "classes": "obdsd.data.class_similarities:classes",
    },
    context=("model", "part", "num_samples", "dim"),
)
TARGETS = Table(
    "targets",
    {
        "pairwise": "obdsd.method.targets:PairwiseTargets",
        "batch-diffusion": "obdsd.method.targets:BatchDiffusion",
        "global-diffusion": "obdsd.method.global_diffusion:GlobalDiffusion",
        "proxy-diffusion": "obdsd.method.targets:ProxyDiffusion",
        "kernel": "obdsd.method.kernels:Kernel",
        "global-kernel": "obdsd.method.kernels:GlobalKernel",
        "balanced": "obdsd.method.targets:Balanced",
        "mean-mix": "obdsd.method.targets:MeanMix",
        "uniform-mix": "obdsd.method.targets:UniformMix",
        "affine": "obdsd.method.targets:AffineScores",
        "class-mates": "obdsd.method.class_mates:ClassMates",
    },
)
MATCHINGS = Table(
    "matching",
    {
        "kl": "obdsd.method.matching:KL",
        "rcl": "obdsd.method.relations:RCL",
        "rkd": "obdsd.method.relations:RKD",
        "pkt": "obdsd.method.relations:PKT",
        "cosine": "obdsd.method.regression:Regression",
        "plg": "obdsd.method.class_guidance:PLG",
    },
    context=("dim", "teacher_dim", "seed"),
)
SYSTEMS = Table(
    "system",
    {
        "standard": "obdsd.objectives.system:standard",
        "s2sd": "obdsd.objectives.s2sd:S2SDSystem",
        "soft-labels": "obdsd.objectives.soft_labels:SoftLabels",
        "mic": "obdsd.objectives.mic:MIC",
        "dcml": "obdsd.objectives.dcml:DCML",
        "diva": "obdsd.objectives.diva:DiVA",
        "drml": "obdsd.objectives.drml:DRML",
        "divide-and-conquer": "obdsd.objectives.divide_conquer:DivideAndConquer",
        "pads": "obdsd.objectives.pads:PADS",
        "das": "obdsd.objectives.das:DAS",
        "memvir": "obdsd.objectives.memvir:MemVir",
    },
    context=("model", "make_loss", "teacher", "distill", "part", "epochs", "seed"),
)
DATA = Table(
    "data",
    {
        "cub200": "obdsd.data.cub200:cub200",
        "cars196": "obdsd.data.cars196:cars196",
        "sop": "obdsd.data.sop:sop",
        "inshop": "obdsd.data.inshop:inshop",
        "folder": "obdsd.data.folders:folder",
        "manifest": "obdsd.data.manifests:manifest",
        "embeddings": "obdsd.data.embeddings:embeddings",
        "glyphs": "obdsd.data.glyphs:glyphs",
    },
    context=("path", "seed", "test_fraction", "allow_incomplete", "beside", "root", "cache"),  # the last only in Python
)
RERANKERS = Table(
    "rerank",
    {
        "none": "obdsd.search.flat:Cosine",
        "diffusion": "obdsd.search.diffusion:Diffusion",
        "alpha-qe": "obdsd.search.expansion:AlphaExpansion",
        "k-reciprocal": "obdsd.search.k_reciprocal:KReciprocal",
    },
)
TABLES = {table.kind: table for table in (LOSSES, TEACHERS, TARGETS, MATCHINGS, SYSTEMS, DATA, RERANKERS)}
OUTSIDE: set[str] = set()
"""Modules that registered something from outside the package: a process that is started must import them, too."""


def register(kind: str, name: str, build: Callable[..., Any]) -> None:
    """Add a part of your own: a loss, teacher, targets, matching, system, data set or re-ranker. From then on its name works everywhere.

    Args:
        kind: `loss`, `teacher`, `targets`, `matching`, `system`, `data` or `rerank`. (A metric: `obdsd.register_metric`.)
        name: What it is called in options and on the command line.
        build: A function or class. What the training knows is passed to its arguments of these names: to a loss `num_classes`, `dim`
            and `seed`; to a teacher `model`, `part` (the items that train), `num_samples` and `dim`; to a matching `dim`, `teacher_dim` and
            `seed`; to a system `model`, `make_loss`, `teacher`, `distill`, `part`, `epochs` and `seed`; to a data set `path`, `seed`,
            `test_fraction`, `allow_incomplete`, `beside` and `root`. All other arguments are its settings; a data set has none.
    """
    if kind not in TABLES:
        raise InputError(f"kind={kind} is not known; {suggestion(kind, TABLES)}")
    TABLES[kind].register(name, build)
    remember_caller()


def remember_caller() -> None:
    """Note which module outside the package registers something. (The parts themselves may come from yet another one.)"""
    frame = sys._getframe(1)
    while frame.f_back and _module(frame).partition(".")[0] in ("obdsd", "jaxtyping"):  # the latter may check types between
        frame = frame.f_back
    OUTSIDE.add(_module(frame))


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "__main__"))
