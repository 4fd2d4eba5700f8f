"""Training: the only room that knows the training engine."""

from obdsd.errors import explain_missing

with explain_missing():
    from obdsd.training.run import train
    from obdsd.training.runs import RunResult

__all__ = ["RunResult", "train"]
