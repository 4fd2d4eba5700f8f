import pyarrow as pa
import pyarrow.parquet
import pytest

from obdsd.data.manifests import read_table
from obdsd.errors import InputError


def test_csv_cells_stay_text_and_parquet_keeps_its_types(tmp_path):
    (tmp_path / "x.csv").write_text('path,label\n"a\nb.png",007\n,1e3\n')
    assert read_table(tmp_path / "x.csv").to_pydict() == {"path": ["a\nb.png", ""], "label": ["007", "1e3"]}
    pa.parquet.write_table(pa.table({"label": [7]}), tmp_path / "x.PARQUET")
    assert read_table(tmp_path / "x.PARQUET").to_pydict() == {"label": [7]}


@pytest.mark.parametrize(
    ("name", "content"),
    [("latin.csv", "path,label\nä.png,x\n".encode("latin-1")), ("cut.parquet", b"PAR1 and no more"), ("empty.csv", b"")],
)
def test_what_is_no_table_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{name}: cannot be read as a table \(.*\); expected UTF-8 CSV or Parquet"):
        read_table(tmp_path / name)


def test_a_table_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"gone\.csv: no such file"):
        read_table(tmp_path / "gone.csv")
