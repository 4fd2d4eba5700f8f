import numpy as np
import pytest
from scipy.io import loadmat, savemat

from obdsd.data.matlab import read_mat
from tests.data.test_cars196 import annotations, cell

CONTENT = {
    "class_names": cell(["AM General Hummer", "Citroën", "鳥", ""]),
    "annotations": annotations([("car_ims/1.jpg", 3), ("car_ims/2.jpg", 196)]),
    **{f"n_{kind}": np.arange(5, dtype=kind) for kind in ("int8", "uint8", "int16", "uint16", "int32", "int64", "float32", "float64")},
    "empty": np.zeros((0, 0)),
}


@pytest.mark.parametrize("compressed", [False, True])
def test_it_is_what_scipy_reads(tmp_path, compressed):
    savemat(tmp_path / "x.mat", CONTENT, do_compression=compressed)
    ours, scipys = read_mat(tmp_path / "x.mat"), loadmat(tmp_path / "x.mat", squeeze_me=True)
    assert ours.keys() == CONTENT.keys() == scipys.keys() - {"__header__", "__version__", "__globals__"}
    assert ours["class_names"][:3] == scipys["class_names"].tolist()[:3]
    rows = [{name: row[name] for name in ("relative_im_path", "class", "test")} for row in scipys["annotations"]]
    assert ours["annotations"] == [{name: value if isinstance(value, str) else [value] for name, value in row.items()} for row in rows]
    for name in CONTENT.keys() - {"class_names", "annotations"}:
        assert ours[name] == scipys[name].ravel().tolist()


def test_what_is_packed_is_unpacked_so_far_and_no_further(tmp_path, monkeypatch):
    savemat(tmp_path / "x.mat", {"zeros": np.zeros(10_000)}, do_compression=True)
    monkeypatch.setattr("obdsd.data.matlab.LARGEST", 10_000)
    with pytest.raises(ValueError, match="it is cut off"):
        read_mat(tmp_path / "x.mat")
