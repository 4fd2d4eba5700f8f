"""Mistakes are told before what takes seconds to import: most before torch, all before what a training needs beside it."""

import difflib
import json
import subprocess
import sys

import pytest
from PIL import Image

from obdsd import cli
from obdsd.catalogue import TABLES
from obdsd.cli.parser import SURE, parser_of
from obdsd.models import Embedder
from obdsd.search import Index, Pass
from tests.made_up import write_rows

HEAVY = {"timm", "torchvision", "lightning", "sklearn", "pytorch_metric_learning", "faiss", "plotly", "jinja2"}
WITHOUT_TORCH = {
    "train folder:nope": "nope: no such folder",
    "train nope.npz": "nope.npz: no such file",
    "train manifest:nope.csv": "nope.csv: no such file",
    "train photos": "DATA 'photos' must be NAME:PATH, glyphs, or an embeddings file (.npz, .npy",
    "train rows.npz --preset ms+obdsd": "--preset 'ms+obdsd' is not known",
    "train rows.npz --loss marign": "--loss marign is not known",
    "train rows.npz --wieght 3": "--wieght is no option of obdsd train; did you mean --weight?",
    "train rows.npz --epochs many": "--epochs many must be a whole number",
    "train rows.npz --epochs 0": "--epochs 0 must be 1 or more",
    "train rows.npz --config bad.yaml": "bad.yaml: is no YAML",
    "train rows.npz --resume yes": "--resume takes no value",
    "compare rows.npz --resume": "--resume is no option of obdsd compare",
    "compare rows.npz --rows rows.yaml": "row x: preset='ms+spd' is not known",
    "compare folder:nope": "nope: no such folder",
    "report nope": "nope: no such folder",
    "report photos": "photos: holds no run",
    "verify nope": "nope: no such folder",
    "evaluate nope rows.npz": "MODEL 'nope' does not exist",
    "evaluate resnet50:imagenet folder:nope": "nope: no such folder",
    "embed nope rows.npz --out x.npz": "MODEL 'nope' does not exist",
    "embed nope rows.npz --out x.txt": "--out 'x.txt' must end in .parquet or .npz",
    "data check folder:nope": "nope: no such folder",
    "presets mss": "PRESET 'mss' is not known",
    "train folder:photos --backbone resnet5": "--backbone 'resnet5' is not known to timm; try resnet50",
    "compare folder:photos --backbone resnet5.in1k": "--backbone 'resnet5.in1k' is not known to timm; try",
    "embed resnet5:imagenet folder:photos --out x.npz": "backbone='resnet5' is not known to timm; try resnet50",
}
WITH_TORCH = {  # the settings of parts are needed, or their effect on a name
    "train rows.npz --zzz 3": "--zzz is no option of obdsd train",
    "train rows.npz --loss margin(bta=1)": "--loss margin(bta=1): margin has no setting 'bta'",
    "train rows.npz --out occupied": "--out occupied holds a run already",
    "train folder:empty": "empty: holds no image (.jpg, .jpeg, ",
    "train folder:photos --pretrained nope.pth": "nope.pth: no such file",
    "train folder:photos --pretrained bad.pt": "bad.pt: cannot be read as weights without executing code",
    "train folder:photos --pretrained rows.npz": "rows.npz: weights must be a .safetensors, .pth or .pt file",
}
OF_AN_INDEX = {  # faiss reads its vectors
    "index resnet5:imagenet folder:photos --out y.index": "backbone='resnet5' is not known to timm; try resnet50",
    "index tf_efficientnet_lite0 folder:photos --out y.index": "MODEL 'tf_efficientnet_lite0' does not exist, and as a backbone it lacks",
    "index tf_efficientnet_lite0:offline folder:nope --out y.index": "nope: no such folder",
    "index tf_efficientnet_lite0:offline folder:photos --out photos": "photos: is a folder with other files",
    "index nope --refresh": "nope: no such folder; give an index",
    "index x.index --add folder:nope": "nope: no such folder",
    "index x.index --refresh folder:nope": "nope: no such folder",
    "index x.index --remove 99.png": "'99.png' is no item of the index; did you mean class ",
    "search nope 9.png": "nope: no such folder; give an index",
    "search x.index nope.png": "'nope.png' is no file, no folder and no item of the index",
    "search x.index bad.yaml": "bad.yaml: cannot be read as an image",
    "search x.index bad.yaml --within clas": "--within 'clas' is no label of the index; its labels, the most alike first: class ",
    "calibrate x.index folder:nope": "nope: no such folder",
    "calibrate nope folder:photos": "nope: no such folder; give an index",
    "serve nope": "nope: no such folder; give an index",
    "serve x.indx": "x.indx: no such folder; did you mean x.index?",
    "calibrate x.index folder:photos --rates 10": "--rates 10.0 must be between 0 and 1",
    "index x.index --store milvus:localhost:19530": "--store milvus:localhost:19530 must be folder, milvus:FILE.db (Milvus Lite) or",
    "data suspects tf_efficientnet_lite0:offline folder:nope": "nope: no such folder",
}
WITH_TIMM = {  # which alone knows the tags of its weights
    "embed resnet50.nope:imagenet folder:photos --out x.npz": "backbone='resnet50.nope' names weights that timm does not know; there are",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    write_rows(folder / "rows.npz", 8, 4, 3)
    for number in range(40):
        file = folder / "photos" / f"class {number // 10}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(file)
    (folder / "empty" / "a").mkdir(parents=True)
    (folder / "occupied").mkdir()
    (folder / "occupied" / "result.json").write_text("{}")
    (folder / "bad.pt").write_text("a: [")
    (folder / "bad.yaml").write_text("a: [")
    (folder / "rows.yaml").write_text("x: {preset: ms+spd}")
    model = Embedder("tiny-conv", dim=4)
    Index.build(model, f"folder:{folder / 'photos'}", folder / "x.index", how=Pass(workers=0, device="cpu"))
    return folder


@pytest.mark.parametrize(
    ("mistakes", "without"),
    [
        (WITHOUT_TORCH, {"torch", *HEAVY}),
        (OF_AN_INDEX, {"torch", *HEAVY} - {"faiss"}),
        (WITH_TORCH, HEAVY),
        (WITH_TIMM, HEAVY - {"timm", "torchvision"}),
    ],
    ids=["torch", "torch, of an index", "timm", "the rest"],
)
def test_a_mistake_is_told_before_heavy_imports(here, mistakes, without):
    """All of them in one process: what one imports is there for the others."""
    code = (
        "import json, sys; from obdsd import cli\n"
        "for line in json.load(sys.stdin): print('line', cli.main(line.split()), file=sys.stderr)\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, input=json.dumps([*mistakes]), capture_output=True, text=True, cwd=here, check=True)
    lines = done.stderr.splitlines()
    assert lines[1::2] == ["line 2"] * len(mistakes)
    for line, answer in zip(lines[::2], mistakes.values(), strict=True):
        assert line.startswith(f"obdsd: {answer}")
    assert {*done.stdout.split()} & without == set()


def test_what_is_surely_a_typing_mistake_is_no_parts_setting():
    """Such a flag is told without a look at the parts."""
    flags = parser_of("train", cli._module("train"))._option_string_actions
    settings = {setting.replace("_", "-") for table in TABLES.values() for name in table.names for setting in table.settings(name)}
    near = {setting: difflib.get_close_matches(f"--{setting}", flags, n=1, cutoff=SURE) for setting in settings}
    assert {setting: flags for setting, flags in near.items() if flags and f"--{setting}" not in flags} == {}
