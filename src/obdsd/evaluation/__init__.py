"""Embeddings and labels in, numbers out: retrieval, clusters and the geometry of the embedding space."""

from obdsd.errors import explain_missing

with explain_missing():
    from obdsd.evaluation.metrics import METRICS, Metric, metric, register_metric
    from obdsd.evaluation.points import Points
    from obdsd.evaluation.scores import Scores, evaluate

__all__ = ["METRICS", "Metric", "Points", "Scores", "evaluate", "metric", "register_metric"]
