"""Base losses: (embeddings, labels) → scalar, from pytorch-metric-learning with the paper's settings."""

from obdsd.objectives.losses import Objective, from_pml, margin, multi_similarity, proxy_anchor, r_margin
from obdsd.objectives.samplers import TripletSampler

__all__ = ["Objective", "TripletSampler", "from_pml", "margin", "multi_similarity", "proxy_anchor", "r_margin"]
