"""A package of somebody else: it adds a part of every kind to obdsd. Importing it is enough, and so is installing it."""

from rings import metric, parts

__all__ = ["metric", "parts"]
