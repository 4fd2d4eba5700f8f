"""Is a collection fit to train on and to be scored, and which part of it is scored? One answer for every command."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from obdsd.data.collection import Collection, some
from obdsd.data.items import Items
from obdsd.data.part import Part
from obdsd.data.unusable import each_item, left_out_lines
from obdsd.errors import InputError
from obdsd.provenance import TrainedOn, short_digest


def check_trainable(collection: Collection) -> None:
    """Refuse what cannot be trained on: no labels, no training part, no two classes or no pair in it, classes on both sides of the line."""
    name = collection.name
    if why := next(iter(collection.parts.values())).unlabelled:
        raise InputError(f"{name}: training needs labels, but it {why}")
    if "train" not in collection.parts:
        raise InputError(f"{name}: training needs a part train, but it has {', '.join(collection.parts)} alone; mark items as train")
    train = collection["train"]
    if len(train.class_names) < 2:
        only = f"train has one class only ({train.class_names[0]!r})"
        raise InputError(f"{name}: {only}; a metric needs 2 or more to compare, add classes or make test_fraction smaller")
    if np.bincount(train.labels).max() < 2:
        raise InputError(f"{name}: no training class has 2 items; without a pair of one class there is nothing to learn")
    for one, other in itertools.combinations(collection.parts, 2):
        shared = sorted({*collection[one].class_names} & {*collection[other].class_names})
        if shared and {one, other} & {"train", "val"}:  # those that are scored may share theirs
            remedy = "classes of the test must not train; --merge joins all parts and splits their classes anew"
            raise InputError(f"{name}: {one} and {other} share {len(shared)} classes ({some(shared, 3)}); {remedy}")


def scored_parts(name: str, parts: Mapping[str, Part], part: str = "test") -> dict[str, Part]:
    """What is searched, and then what searches it if that is another part.

    `test` stands for the gallery and the query where the data have both, also beside a test part.
    """
    if part == "test" and {"query", "gallery"} <= parts.keys():
        return {"gallery": parts["gallery"], "query": parts["query"]}
    if part not in parts:
        raise InputError(f"{name}: part={part} is not there; it has {', '.join(parts)}, choose one of these or split otherwise")
    return {part: parts[part]}


def check_scorable(name: str, parts: Mapping[str, Part], part: str = "test", ks: Sequence[int] = ()) -> dict[str, Part]:
    """The scored parts, in which no query finds itself. What could not be scored is refused, before long work for it."""
    chosen = scored_parts(name, parts, part)
    if why := next(iter(chosen.values())).unlabelled:
        raise InputError(f"{name}: scoring needs labels, but it {why}")
    chosen = _never_itself(name, chosen)
    groups: dict[str, set[Any]] = defaultdict(set)  # of each class; without groups every item is one
    for which, each in chosen.items():
        item, times = Counter(map(each.name, range(len(each)))).most_common(1)[0]
        if times > 1:
            raise InputError(f"{name}: {which} holds {item!r} {times} times; an item that repeats finds itself, keep one")
        marks = [(which, index) for index in range(len(each))] if each.groups is None else each.groups.tolist()
        for label, mark in zip(each.classes.tolist(), marks, strict=True):
            groups[label].add(mark)
    where = " and ".join(chosen)
    if len(groups) < 2:
        raise InputError(f"{name}: {where}: there is one class only ({min(groups)!r}); retrieval needs 2 or more to tell apart")
    searched, gallery = next(iter(chosen.items()))
    most = len(gallery) - (len(chosen) == 1)
    if max(ks, default=0) > most:
        raise InputError(f"ks={max(ks)} is more than the {most} items of {searched} that can be found; ask for fewer")
    findable = set.intersection(*(set(each.classes.tolist()) for each in chosen.values()))
    if not any(len(groups[label]) > 1 for label in findable):
        raise InputError(f"{name}: {where}: no query has another item of its class to find; give classes of 2 items or more")
    return chosen


def _never_itself(name: str, chosen: dict[str, Part]) -> dict[str, Part]:
    """The same parts, with groups that keep a query from finding itself if the gallery holds it too."""
    if len(chosen) == 1:  # then by its place
        return chosen
    (searched, gallery), (asking, query) = chosen.items()
    same = _identities([gallery, query])
    both = np.isin(same, np.intersect1d(same[: len(gallery)], same[len(gallery) :]))
    if not both.any():
        return chosen
    if gallery.groups is None or query.groups is None:
        return {searched: gallery.replace(groups=same[: len(gallery)]), asking: query.replace(groups=same[len(gallery) :])}
    marks = np.column_stack([same, np.concatenate([gallery.groups, query.groups])])[both]
    kinds, counts = np.unique(np.unique(marks, axis=0)[:, 0], return_counts=True)
    if counts.max() > 1:
        item = query.name(int(np.argmax(same[len(gallery) :] == kinds[counts.argmax()])))
        raise InputError(
            f"{name}: {asking} and {searched} hold {item!r} in different groups; give it one group, so that it never finds itself"
        )
    return chosen


def _identities(parts: Sequence[Part]) -> NDArray[np.int64]:
    """A number for each item: items of a class that have one name, or one content, have the same."""
    labels = [label for part in parts for label in part.classes.tolist()]
    names = [part.name(index) for part in parts for index in range(len(part))]
    links: list[int] = []  # from each item to the first like it
    for marks in (names, [digest for part in parts for digest in part.digests()]):
        first: dict[tuple[str, str], int] = {}
        links += [first.setdefault(mark, index) for index, mark in enumerate(zip(labels, marks, strict=True))]
    ends = np.tile(np.arange(len(names)), 2), np.array(links)
    graph = scipy.sparse.coo_matrix((np.ones(len(links)), ends), shape=(len(names), len(names)))
    return scipy.sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.int64)


def check_unseen(model: str, trained_on: TrainedOn | None, chosen: Mapping[str, Part]) -> list[str]:
    """What the scores of a model on these parts may owe to its training. Items that trained it are refused.

    Nothing is to be said of the parts that its own training scored, or of a part `train`, which is asked for on purpose.
    """
    where = " and ".join(chosen)
    if trained_on is None or where == "train":
        return []
    if all(trained_on.parts.get(name) == part.fingerprint() for name, part in chosen.items()):
        return []
    items = {digest: part.name(index) for part in chosen.values() for index, digest in enumerate(part.digests())}
    trained, chose = ({*trained_on.items.get(name, "").split()} & items.keys() for name in ("train", "val"))
    if trained:
        raise InputError(
            f"model={model}: was trained on {len(trained)} of the {len(items)} items of {where}, such as {items[min(trained)]!r}; "
            "give items that it has not seen, or mark these as train"
        )
    classes = {short_digest(name.encode()) for part in chosen.values() for name in part.class_names}
    known = classes & {*trained_on.classes.get("train", "").split()}
    remarks = {
        f"it does not say which items trained it, as an earlier version saved it; items of {where} may be among them": not trained_on.items,
        f"{len(chose)} of the {len(items)} items of {where} were held out in its training and may have chosen its epoch": chose,
        f"{len(known)} of the {len(classes)} classes of {where} have names of its training classes and may not be new to it": known,
    }
    return [f"model={model}: {remark}" for remark, applies in remarks.items() if applies]


class Findings(NamedTuple):
    """What makes training on a collection wrong, and what one should know of it."""

    problems: list[str]
    remarks: list[str]
    unreadable: int  # of the problems


def check(collection: Collection, advance: Callable[[int], None] = lambda count: None) -> Findings:
    """Problems: items that cannot be read, identical content on both sides of the train/test line, what keeps the collection from being
    trained on or scored. Remarks: identical content inside a part, files that are not used, items that were left out.

    Content is compared by a hash of the decoded pixels (or of the vector), so that copies under another name, or with other metadata, are
    found too. `advance` is told how many items were done.
    """
    problems: list[str] = []
    unreadable = 0
    remarks = [*collection.remarks, *left_out_lines(collection)]
    trained: dict[bytes, tuple[str, str]] = {}  # content → part and name
    for name in sorted(collection.parts, key=lambda part: part not in ("train", "val")):
        part, own, twice = collection[name], dict[bytes, str](), list[str]()
        for index, content in each_item(part, partial(_hash, part.items)):
            advance(1)
            if isinstance(content, InputError):
                problems.append(f"unreadable: {content}")
                unreadable += 1
            elif content in own:
                twice.append(f"{own[content]} = {part.name(index)}")
            else:
                own[content] = part.name(index)
                if name not in ("train", "val") and content in trained:
                    where, item = trained[content]
                    problems.append(f"same content in {where} and {name}: {item} = {part.name(index)}")
        if name in ("train", "val"):
            trained |= {content: (name, item) for content, item in own.items()}
        if twice:
            remarks.append(f"same content twice in {name}: {len(twice):,}, {some(twice)}")
    return Findings(problems + list(_unfit(collection)), remarks, unreadable)


def _unfit(collection: Collection) -> Iterator[str]:
    """What keeps the collection from being trained on, and from being scored."""
    try:
        check_trainable(collection)
    except InputError as fault:
        yield f"cannot be trained on: {fault}"
    for name in ("test", *({"val"} & collection.parts.keys())):
        try:
            check_scorable(collection.name, collection.parts, name)
        except InputError as fault:
            yield f"cannot be scored: {fault}"


def _hash(items: Items, position: int) -> bytes:
    content = np.asarray(items.read(position))
    return hashlib.blake2b(content.tobytes() + str(content.shape).encode(), digest_size=16).digest()
