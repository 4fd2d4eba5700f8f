"""Pooling, which S2SD's heads share: it lives in the room of the method."""

from obdsd.method.pooling import Pooling as Pooling
from obdsd.method.pooling import pool as pool
