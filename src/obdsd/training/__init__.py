"""Training: the only room that knows the training engine."""

from obdsd.errors import explain_missing

with explain_missing():
    from obdsd.training.loop import train
    from obdsd.training.run_folder import RunRecord
    from obdsd.training.trainer import Trainer

__all__ = ["RunRecord", "Trainer", "train"]
