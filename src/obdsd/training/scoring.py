"""What a training is judged by: held-out classes, test classes, the training set's geometry, and what there was before it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import nn

from obdsd.cache import cached
from obdsd.catalogue import OUTSIDE
from obdsd.counting import Progress, counted
from obdsd.data import Collection, Part
from obdsd.data.check import scored_parts
from obdsd.data.collection import loader_workers
from obdsd.data.decoded import at_a_test
from obdsd.errors import InputError
from obdsd.evaluation import Points, Scores, evaluate
from obdsd.evaluation.embedding import embed
from obdsd.evaluation.scores import geometry
from obdsd.models import Embedder
from obdsd.models.inference import for_inference
from obdsd.options import TrainOptions
from obdsd.processes import versions
from obdsd.search.scoring import scores_of
from obdsd.training.features import backbone_digest, unit_features
from obdsd.training.ranks import Ranks

FROZEN = "frozen features"  # what the reference is called


class Scoring:
    """Embeds the parts of a collection with the model as it stands and scores them."""

    def __init__(
        self,
        options: TrainOptions,
        collection: Collection,
        model: Embedder,
        ranks: Ranks,
        progress: Progress = lambda stage, done, total: None,
    ) -> None:
        self.options, self.collection, self.model, self.ranks = options, collection, model, ranks
        self._known: dict[int, NDArray[np.float32]] = {}
        self._features_of: dict[int, NDArray[np.float32]] = {}
        self._scored = "val" if options.score == "validation" else "test"
        self.progress = progress

    def forget(self) -> None:
        """The model changes: what it made of the parts no longer holds."""
        self._known.clear()
        self._features_of.clear()

    def remember(self, rows: Mapping[str, NDArray[np.float32]]) -> None:
        """What the model as it stands is known to make of whole parts."""
        self._known = {id(self.collection[name]): own for name, own in rows.items()}

    def known(self) -> dict[str, NDArray[np.float32]]:
        """What the model as it stands made of each part so far."""
        return {name: self._known[id(part)] for name, part in self.collection.parts.items() if id(part) in self._known}

    def validation(self) -> Scores:
        return self._scores(*self._points("val"))

    def test(self) -> Scores:
        return self._scores(*self._points("test"))

    def final(self) -> Scores:
        """Everything about the part that the options say, the test classes if not the held-out ones."""
        return self._scores(*self._points(self._scored), clusters=True, details=True)

    def reranked(self) -> dict[str, dict[str, float | None]]:
        """The same part ranked by the re-ranker that the options name, by its name; nothing without one."""
        rerank = self.options.rerank
        if rerank.name == "none":
            return {}
        points = self._points(self._scored)
        depths = self._depths(*points)
        return {str(rerank): self.ranks.once(lambda: scores_of(rerank, *points, ks=depths, progress=self.progress).as_dict())}

    def geometry(self) -> dict[str, float | None]:
        """Density and spectral decay of the training set by its true labels, as in the paper."""
        part = self.collection["train"]
        rows = self._rows(part)
        with self._stage("geometry of the training set"):
            return self.ranks.once(lambda: geometry(rows, part.labels))

    def reference(self) -> dict[str, dict[str, float | None]]:
        """The scored classes by the features that training starts from, and by their PCA to the embeddings' length.

        It is computed once for all runs, here and in other processes, that start from the same features of the same data.
        """
        with self._stage("untrained features"):
            if self.ranks.size > 1 or OUTSIDE:  # ranks compute it together; a metric from outside may change under its name
                return self.reference_anew()
            key = {
                "what": "untrained reference",
                "features": None if self.model.preprocessing is None else backbone_digest(self.model),
                "data": {name: part.fingerprint() for name, part in self.collection.parts.items()},
                "dim": self.model.dim,
                "scored": [self._scored, *self.options.ks],
                "device": self.ranks.fabric.device.type,
                "versions": versions(),
            }
            kept = cached(key, lambda: {"scores": np.array(json.dumps(self.reference_anew()))})
            return json.loads(str(kept["scores"]))

    def reference_anew(self) -> dict[str, dict[str, float | None]]:
        """The same, whatever was computed before."""
        points, train = self._points(self._scored, self._features), self._features(self.collection["train"])
        scores = {FROZEN: self._scores(*points).as_dict()}
        if self.model.dim < min(train.shape):
            with self._stage("PCA of the training set"):
                centre = train.mean(axis=0)
                directions = _main_directions(train - centre, self.model.dim)
            projected = [each._replace(embeddings=(each.embeddings - centre) @ directions) for each in points]
            scores["their PCA"] = self._scores(*projected).as_dict()
        return scores

    def projection(self) -> NDArray[np.float32]:
        """P (dim × features) whose cosines are nearest to those of the training set's features: its main directions, not centred.

        With slices it is turned at random, which keeps the cosines: else the first slice would know all, and the last nothing. Of a
        relational head it is one for each branch's features (branches × dim/branches × features/branches)."""
        features, dim, own = self._features(self.collection["train"]), self.model.dim, self.model.architecture
        rows = self.model.before_head(torch.from_numpy(features)).numpy()
        if dim > rows.shape[1]:
            raise InputError(f"dim={dim} is more than the {rows.shape[1]} features that head_init=projection keeps; ask for fewer")
        with self._stage("projection of the training set"):
            if own.branches:
                parts = np.split(rows, own.branches, axis=1)
                return self.ranks.once(lambda: np.stack([_main_directions(part, dim // len(parts)).T for part in parts]))
            projection = self.ranks.once(lambda: np.ascontiguousarray(_main_directions(rows, dim).T))
        if own.slices == 1:
            return projection
        turn, _ = np.linalg.qr(np.random.default_rng((self.options.seed, dim)).standard_normal((dim, dim)))
        return (turn @ projection).astype(np.float32)

    def _points(self, part: str, rows_of: Callable[[Part], NDArray[np.float32]] | None = None) -> list[Points]:
        """What is searched and, if that is another part, what searches it: as the model embeds them, or with other rows."""
        parts = scored_parts(self.collection.name, self.collection.parts, part).values()
        return [Points((rows_of or self._rows)(each), each.classes, each.groups) for each in parts]

    def _scores(self, gallery: Points, query: Points | None = None, *, clusters: bool = False, details: bool = False) -> Scores:
        depths = self._depths(gallery, query)
        rows, labels, groups = gallery
        how: dict[str, Any] = {"query": query, "groups": groups, "clusters": clusters, "details": details, "progress": self.progress}
        return self.ranks.once(lambda: evaluate(rows, labels, depths, **how))

    def _depths(self, gallery: Points, query: Points | None = None) -> list[int]:
        """Held-out classes may be few; test classes were checked before."""
        return [k for k in self.options.ks if k <= len(gallery.labels) - (query is None)]

    def _rows(self, part: Part) -> NDArray[np.float32]:
        if id(part) not in self._known:
            self._known[id(part)] = self.rows_of(self.model, part)
        return self._known[id(part)]

    def _features(self, part: Part) -> NDArray[np.float32]:
        """Unit rows of what the head is given."""
        if part.is_rows:
            rows = part.matrix()
        elif self.ranks.size > 1:  # they share the work
            rows = self.rows_of(self.model.headless(), part)
        else:
            rows = self._known_features()[id(part)]
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)

    def _known_features(self) -> dict[int, NDArray[np.float32]]:
        """Of all parts, while the model stands still."""
        if not self._features_of:
            advance = counted(self.progress, "features", sum(map(len, self.collection.parts.values())))
            how: dict[str, Any] = {"workers": self.options.workers, "batch_size": self.options.eval_batch_size}
            features = unit_features(self.model, self.collection, device=self.ranks.fabric.device, **how, advance=advance)
            self._features_of = {id(self.collection[name]): rows for name, rows in features.items()}
        return self._features_of

    def rows_of(self, model: nn.Module, part: Part) -> NDArray[np.float32]:
        """Unit rows of a part by a model, its items as at a test; each rank embeds its share."""
        stage = f"embedding {next((name for name, each in self.collection.parts.items() if each is part), 'train')} items"
        preprocessing = getattr(model, "preprocessing", None) or self.model.preprocessing  # a teacher may expect something else
        if preprocessing is not None:
            part = at_a_test(part, preprocessing)
        model, batch_size = for_inference(model), self.options.eval_batch_size
        workers, device = loader_workers(self.options.workers, part), self.ranks.fabric.device

        def embedded(share: Part) -> NDArray[np.float32]:
            advance = counted(self.progress, stage, len(share))
            return embed(model, share, batch_size=batch_size, workers=workers, device=device, advance=advance)

        return self.ranks.embedded(part, embedded)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Something that cannot be counted."""
        self.progress(name, 0, 1)
        yield
        self.progress(name, 1, 1)


def _main_directions(rows: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The `count` directions (features × count) along which rows are longest: the right singular vectors of the largest values."""
    products = rows.T @ rows
    return scipy.linalg.eigh(products, subset_by_index=[len(products) - count, len(products) - 1])[1]
