"""Base losses: (embeddings, labels) → scalar, from pytorch-metric-learning with the paper's settings; and S2SD's heads around one."""

from obdsd.errors import explain_missing

with explain_missing():
    from obdsd.objectives.losses import Objective, from_pml, margin, multi_similarity, nt_xent, r_margin
    from obdsd.objectives.proxies import proxy_anchor, proxy_nca, soft_triple
    from obdsd.objectives.s2sd import S2SD
    from obdsd.objectives.samplers import TripletSampler

__all__ = [
    "S2SD",
    "Objective",
    "TripletSampler",
    "from_pml",
    "margin",
    "multi_similarity",
    "nt_xent",
    "proxy_anchor",
    "proxy_nca",
    "r_margin",
    "soft_triple",
]
