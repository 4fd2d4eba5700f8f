"""Milvus, where the vectors of an index can be: a file of Milvus Lite, or a cluster by its address. Both have the same client."""

from __future__ import annotations

import logging
import os
import re
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.errors import InputError, explain_missing
from obdsd.search.how import Progress
from obdsd.search.table import Item

TOKEN = "OBDSD_MILVUS_TOKEN"  # the environment variable with USER:PASSWORD or a token
PATIENCE, LOADING = 30.0, 600.0  # seconds for an answer, and for a collection to be loaded
MOST = 16_384  # items that Milvus finds for a query, or lists
BYTES = 1 << 22  # of vectors in one message
LONGEST = 65_535  # bytes of a text

Rows = NDArray[np.float32]
Ids = NDArray[np.int64]


def uri_of(store: str) -> str | None:
    """Where Milvus is, of `milvus:URI`, with a file by its full path; None for `folder`."""
    if store == "folder":
        return None
    kind, _, uri = store.partition(":")
    is_file = kind == "milvus" and "://" not in uri and Path(uri).suffix == ".db"
    if not is_file and not re.fullmatch(r"milvus:https?://[^/]+(/\w+)?/?", store):
        raise InputError(f"store={store} must be folder, milvus:FILE.db (Milvus Lite) or milvus:http://HOST:PORT")
    if not is_file and "@" in uri:
        raise InputError(f"store= must hold no password; set {TOKEN}=USER:PASSWORD in the environment, and leave it out of the address")
    if not is_file:
        return uri
    path = Path(os.path.abspath(Path(uri).expanduser()))
    if not path.parent.is_dir():
        raise InputError(f"milvus:{path}: {path.parent} is no folder; make it, or choose another place")
    return str(path)


class Milvus:
    """A connection. It ends when nobody holds it any more; Milvus Lite then gives its file free for other processes."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read once, when it is imported; else it tells of every process that loads images
        with explain_missing():
            from pymilvus import MilvusClient

            if not self.is_remote:
                import milvus_lite  # noqa: F401
        for name in ("pymilvus", "milvus_lite"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # they log what they raise, and that is told in one line
        with self.told(), _reason_of_milvus_lite():
            self.client: Any = MilvusClient(uri, token=os.environ.get(TOKEN, ""), timeout=PATIENCE, dedicated=True)
        weakref.finalize(self, _close, self.client, None if self.is_remote else uri)

    @property
    def is_remote(self) -> bool:
        return "://" in self.uri

    @contextmanager
    def told(self) -> Iterator[None]:
        """Whatever goes wrong in a call becomes one line."""
        try:
            yield
        except Exception as failure:  # pymilvus raises errors of its own, those of grpc, and plain ones
            reason = " ".join(str(getattr(failure, "message", failure)).split())[:160]
            remedy = f"see that it runs at this address, and that {TOKEN} is set if it asks for a password"
            if not self.is_remote:
                remedy = "one process at a time opens a file: wait for the other, or give its address (milvus-lite server serves a file)"
            again = "then give the same command again: nothing is lost"
            raise InputError(f"milvus:{self.uri}: does not answer ({reason}); {remedy}; {again}") from failure

    def call(self, name: str, *given: Any, timeout: float | None = None, **how: Any) -> Any:
        """A method of the client."""
        with self.told():
            return getattr(self.client, name)(*given, timeout=timeout or PATIENCE, **how)


_OPEN: weakref.WeakValueDictionary[str, Milvus] = weakref.WeakValueDictionary()


def connected(uri: str, make: bool = False) -> Milvus:
    """The connection of this process to a Milvus. A file that is not there is made only if that is meant."""
    found = _OPEN.get(uri)
    if found is None:
        if "://" not in uri and not make and not Path(uri).exists():
            raise InputError(f"milvus:{uri}: no such file; restore it, or if it moved: obdsd index INDEX --store milvus:NEW_PLACE")
        found = _OPEN[uri] = Milvus(uri)
    return found


def _close(client: Any, file: str | None) -> None:
    client.close()
    if file is not None:
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_server(file)


@contextmanager
def _reason_of_milvus_lite() -> Iterator[None]:
    """Milvus Lite only logs why a file cannot be opened."""
    reasons: list[BaseException] = []

    def keep(record: logging.LogRecord) -> bool:
        reasons.extend(fault for fault in (record.exc_info or ())[1:2] if isinstance(fault, BaseException))
        return False

    logger = logging.getLogger("milvus_lite.server_manager")
    logger.setLevel(logging.ERROR)
    logger.addFilter(keep)
    try:
        yield
    except Exception as failure:
        raise reasons[0] if reasons else failure  # noqa: B904
    finally:
        logger.removeFilter(keep)


class Collection:
    """Unit rows in a collection of Milvus, each under a number, with the name and the label of its item for other programs and filters."""

    def __init__(self, uri: str, name: str, make: bool = False) -> None:
        self.milvus, self.name = connected(uri, make), name

    def exists(self) -> bool:
        return bool(self.milvus.call("has_collection", self.name))

    def make(self, dim: int) -> None:
        """Empty, searched exactly by inner product, and so that whoever reads sees all that was written before."""
        from pymilvus import DataType

        client = self.milvus.client
        schema, index = client.create_schema(auto_id=False, enable_dynamic_field=False), client.prepare_index_params()
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
        schema.add_field("name", DataType.VARCHAR, max_length=LONGEST)
        schema.add_field("label", DataType.VARCHAR, max_length=LONGEST, nullable=True)
        index.add_index("vector", index_type="FLAT", metric_type="IP")
        self.milvus.call("create_collection", self.name, schema=schema, index_params=index, consistency_level="Strong")

    def load(self) -> None:
        """Make it ready to be searched; one that is not there is refused."""
        if not self.exists():
            remedy = "give the Milvus that has it (obdsd index INDEX --store milvus:URI), or build the index anew"
            raise InputError(f"milvus:{self.milvus.uri}: has no collection {self.name}; {remedy}")
        self.milvus.call("load_collection", self.name, timeout=LOADING)

    def drop(self) -> None:
        self.milvus.call("drop_collection", self.name)

    def put(self, ids: Ids, rows: Rows, items: Sequence[Item], progress: Progress) -> None:
        """Write rows under these numbers; once more is the same."""
        step = max(1, BYTES // rows[:1].nbytes) if len(rows) else 1
        for start in range(0, len(ids), step):
            progress("writing the index", start, len(ids))
            part = zip(ids[start : start + step].tolist(), rows[start : start + step], items[start : start + step], strict=True)
            records = [{"id": id, "vector": row, "name": text(item.name), "label": text(item.label)} for id, row, item in part]
            self.milvus.call("upsert", self.name, records)
        self.milvus.call("flush", self.name, timeout=LOADING)
        progress("writing the index", len(ids), len(ids))

    def delete(self, ids: Ids) -> None:
        for start in range(0, len(ids), MOST):
            self.milvus.call("delete", self.name, ids=ids[start : start + MOST].tolist())

    def delete_from(self, first: int) -> None:
        """All numbers from this one on."""
        self.milvus.call("delete", self.name, filter=f"id >= {first}")

    def rows(self, ids: Ids, dim: int) -> Rows:
        found, step = np.empty((len(ids), dim), dtype=np.float32), max(1, min(MOST, BYTES // (4 * dim)))
        for start in range(0, len(ids), step):
            part = ids[start : start + step].tolist()
            records = self.milvus.call("query", self.name, filter=f"id in {part}", output_fields=["id", "vector"], limit=len(part))
            known = {record["id"]: record["vector"] for record in records}
            if len(known) < len({*part}):
                raise lacking(self.milvus.uri, self.name)
            found[start : start + step] = [known[id] for id in part]
        return found

    def search(self, rows: Rows, k: int, condition: str) -> list[tuple[Ids, Rows]]:
        """The numbers and the inner products of the `k` best for each row, best first; fewer if there are no more."""
        wanted: dict[str, Any] = {"limit": k, "filter": condition, "output_fields": ["id"], "consistency_level": "Strong"}
        found = self.milvus.call("search", self.name, data=list(rows), search_params={"metric_type": "IP"}, **wanted)
        return [(np.array(hits.ids, dtype=np.int64), np.array(hits.distances, dtype=np.float32)) for hits in found]


def lacking(uri: str, name: str) -> InputError:
    remedy = "open it again if it has just changed, else build it anew"
    return InputError(f"milvus:{uri}: collection {name} lacks rows of the index; {remedy}")


def text(value: str | None) -> str | None:
    """As Milvus takes it: names of files may hold bytes that are no text."""
    return None if value is None else value.encode(errors="backslashreplace").decode()


def quoted(value: str) -> str:
    """A text in a filter, by those escapes that Milvus and Milvus Lite both know."""
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        value = value.replace(plain, escaped)
    return f'"{value}"'
