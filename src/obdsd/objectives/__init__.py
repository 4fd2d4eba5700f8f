"""Base losses: (embeddings, labels) → scalar, from pytorch-metric-learning with the paper's settings; and the systems around one."""

from obdsd.objectives.margin import margin, r_margin
from obdsd.objectives.multi_similarity import multi_similarity
from obdsd.objectives.nt_xent import nt_xent
from obdsd.objectives.objective import Objective
from obdsd.objectives.pml import from_pml
from obdsd.objectives.proxy_anchor import proxy_anchor
from obdsd.objectives.proxy_nca import proxy_nca
from obdsd.objectives.s2sd import S2SD
from obdsd.objectives.samplers import TripletSampler
from obdsd.objectives.soft_triple import soft_triple
from obdsd.objectives.system import System

__all__ = [
    "S2SD", "Objective", "System", "TripletSampler", "from_pml", "margin", "multi_similarity", "nt_xent", "proxy_anchor", "proxy_nca",
    "r_margin", "soft_triple",
]  # fmt: skip
