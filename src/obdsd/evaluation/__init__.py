"""Embeddings and labels in, numbers out: retrieval and the geometry of the embedding space."""
