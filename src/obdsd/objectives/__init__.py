"""Base losses: (embeddings, labels) → scalar, from pytorch-metric-learning with the paper's settings; and the systems around one."""

from obdsd.objectives.contextual import contextual
from obdsd.objectives.easy_positive import epshn
from obdsd.objectives.margin import margin, r_margin
from obdsd.objectives.mean_field import mean_field
from obdsd.objectives.multi_similarity import multi_similarity
from obdsd.objectives.norm_softmax import norm_softmax
from obdsd.objectives.nt_xent import nt_xent
from obdsd.objectives.objective import Objective
from obdsd.objectives.pml import from_pml
from obdsd.objectives.proxy_anchor import proxy_anchor
from obdsd.objectives.proxy_gml import proxy_gml
from obdsd.objectives.proxy_nca import proxy_nca
from obdsd.objectives.rank_mi import rankmi
from obdsd.objectives.recall_at_k import recall_at_k
from obdsd.objectives.s2sd import S2SD
from obdsd.objectives.samplers import TripletSampler
from obdsd.objectives.soft_triple import soft_triple
from obdsd.objectives.supcon import supcon
from obdsd.objectives.system import System

__all__ = [
    "S2SD", "Objective", "System", "TripletSampler", "contextual", "epshn", "from_pml", "margin", "mean_field", "multi_similarity",
    "norm_softmax", "nt_xent", "proxy_anchor", "proxy_gml", "proxy_nca", "r_margin", "rankmi", "recall_at_k", "soft_triple", "supcon",
]  # fmt: skip
