"""Experiments: several trainings, compared with honest statistics."""

from obdsd.errors import explain_missing

with explain_missing():
    from obdsd.experiments.comparison import Comparison, compare

__all__ = ["Comparison", "compare"]
