"""Experiments: several trainings, compared with honest statistics."""

from obdsd.experiments.compare import Comparison, compare

__all__ = ["Comparison", "compare"]
