"""Maps that are drawn side by side, in a process of their own: nothing but them."""

from tests.started import python

MANY = """
import os
os.environ |= {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}
import faiss
import numpy as np
import torch
from openTSNE.nearest_neighbors import Sklearn
from obdsd.report import map
map.draw_map = lambda rows, **how: Sklearn(rows, 15, n_jobs=1).build()[1]  # of t-SNE only what uses BLAS inside threads: it takes no time
rows = [np.random.default_rng(seed).normal(size=(1500, 64)) for seed in range(6)]
for _ in range(10):
    map.draw_maps(rows, "tsne", 0, lambda *told: None)
"""


def test_libraries_do_not_warn_of_threads_inside_threads():
    """scikit-learn asks BLAS for one thread while it computes, and gives the threads back; so does its neighbour, in the middle of that."""
    with python("-c", MANY) as process:
        said = process.communicate()
    assert (process.returncode, *said) == (0, "", "")
