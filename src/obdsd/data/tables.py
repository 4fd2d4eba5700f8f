"""Tables from files that nobody vouches for: CSV and Parquet, of which only the used columns are read, and no more than memory can bear."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from obdsd.data.footers import row_groups
from obdsd.errors import InputError
from obdsd.files import check_file

SMALL = 2**30  # bytes that any file may take in memory
RATIO = 100  # beyond that, at most so many times its size on the disk
CELL = 64  # bytes of a Python object, which each cell becomes
SEPARATORS = (",", ";", "\t")
HEADER = 2**16  # bytes in which the line of names must end to be looked at whole

Choose = Callable[[list[str]], Sequence[str]]


def read_table(path: Path, choose: Choose) -> pa.Table:
    """Of a CSV file, whose cells stay text, or a Parquet file, the columns that `choose` picks from its names."""
    check_file(path)
    try:
        return _parquet(path, choose) if path.suffix.lower() == ".parquet" else _csv(path, choose)
    except (pa.ArrowException, OSError, UnicodeError) as fault:
        raise InputError(
            f"{path}: cannot be read as a table ({' '.join(str(fault).split())[:200]}); expected UTF-8 CSV or Parquet"
        ) from fault


def cells(path: Path, name: str, column: pa.ChunkedArray) -> list[Any]:
    """A column of texts or numbers as a list."""
    if pa.types.is_nested(column.type):
        raise InputError(f"{path}: column {name!r} holds {column.type}; give one text or number a row")
    try:
        if pa.types.is_dictionary(column.type):
            texts = [pa.compute.binary_length(chunk.dictionary) for chunk in column.chunks]
            lengths = [each.take(chunk.indices) for each, chunk in zip(texts, column.chunks, strict=True)]
            check_inflated(path, sum(pa.compute.sum(each).as_py() or 0 for each in lengths))
            column = column.cast(column.type.value_type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            longest = pa.compute.max(pa.compute.binary_length(column)).as_py() or 0
            check_inflated(path, 4 * len(column) * longest)  # an array holds each as long as the longest
        return column.to_pylist()
    except (pa.ArrowException, UnicodeError) as fault:
        raise InputError(f"{path}: column {name!r} cannot be read ({' '.join(str(fault).split())[:200]}); write it anew") from fault


def check_inflated(path: Path, size: int) -> None:
    """Refuse what would take much more memory than the file takes on the disk, before it does."""
    on_disk = path.stat().st_size
    if size > max(SMALL, RATIO * on_disk):
        raise InputError(f"{path}: {on_disk:,} bytes would take {size / 1e9:,.1f} GB of memory; if that is meant, save it uncompressed")


def _parquet(path: Path, choose: Choose) -> pa.Table:
    with pa.parquet.ParquetFile(path) as file:
        wanted = _chosen(path, choose, file.schema_arrow.names)
        leaves = [file.schema.column(i) for i in range(file.metadata.num_columns)]
        size = 0
        for group in row_groups(path):
            for leaf, chunk in zip(leaves, group, strict=False):
                if leaf.path.split(".")[0] in wanted:
                    size += chunk.size + chunk.values * max(CELL if leaf.path == leaf.name else 8, leaf.length)
        check_inflated(path, size)
    # a text that repeats is kept once: a short file may repeat a long one without end
    texts = [leaf.name for leaf in leaves if leaf.physical_type == "BYTE_ARRAY" and leaf.path == leaf.name]
    with pa.parquet.ParquetFile(path, read_dictionary=[name for name in texts if name in wanted]) as file:
        return file.read(columns=wanted)


def _csv(path: Path, choose: Choose) -> pa.Table:
    layout = pa.csv.ParseOptions(newlines_in_values=True, delimiter=_separator(path))
    with pa.csv.open_csv(path, parse_options=layout) as reader:
        wanted = _chosen(path, choose, reader.schema.names)
    as_text = pa.csv.ConvertOptions(include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string()), strings_can_be_null=False)
    batches, size = [], 0
    with pa.csv.open_csv(path, parse_options=layout, convert_options=as_text) as reader:
        for batch in reader:
            batches.append(batch)
            size += batch.nbytes + batch.num_rows * batch.num_columns * CELL
            check_inflated(path, size)
        return pa.Table.from_batches(batches, reader.schema)


def _separator(path: Path) -> str:
    """What stands most often between the names of the columns."""
    with pa.input_stream(path) as file:  # decompressed where the suffix says so, as pyarrow does for the whole
        header = re.sub(rb'"[^"]*"', b"", file.read(HEADER).split(b"\n")[0])
    return max(SEPARATORS, key=lambda separator: header.count(separator.encode()))


def _chosen(path: Path, choose: Choose, names: list[str]) -> list[str]:
    wanted = [*choose(names)]
    for name in wanted:
        if names.count(name) > 1:
            raise InputError(f"{path}: has {names.count(name)} columns {name!r}; keep one")
    return wanted
