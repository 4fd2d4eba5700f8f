"""What a report shows, gathered from finished runs; `obdsd.report` draws it."""

from obdsd.experiments.reporting.gathering import gather

__all__ = ["gather"]
