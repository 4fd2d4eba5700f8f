"""Tables on disk: CSV and Parquet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from obdsd.errors import InputError


def read_table(path: Path) -> pa.Table:
    """A CSV file with text columns, or a Parquet file."""
    try:
        if path.suffix.lower() == ".parquet":
            return pa.parquet.read_table(path)
        layout = pa.csv.ParseOptions(newlines_in_values=True)
        names = pa.csv.read_csv(path, parse_options=layout).column_names
        as_text = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
        return pa.csv.read_csv(path, convert_options=as_text, parse_options=layout)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (pa.ArrowException, OSError, UnicodeError) as fault:
        raise InputError(
            f"{path}: cannot be read as a table ({' '.join(str(fault).split())[:200]}); expected UTF-8 CSV or Parquet"
        ) from fault
