"""Experiments: several trainings, compared with honest statistics."""

from obdsd.experiments.comparison import Comparison, compare

__all__ = ["Comparison", "compare"]
