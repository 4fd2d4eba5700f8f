"""The rooms and the arrows between them: who may import whom, and what `import obdsd` and `--help` may not pull in."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import obdsd
from obdsd.errors import EXTRAS

SOURCE = Path(obdsd.__file__).parent

# Plain modules: who may import whom. Those of LIGHT import neither torch nor any other package.
LIGHT = {
    "errors": set(),
    "seeds": set(),
    "counting": set(),
    "stopping": {"errors"},
    "preprocessing": {"errors"},
    "provenance": {"errors"},
    "processes": {"", "errors"},
    "spec": {"errors"},
    "convert": {"errors"},
    "parts": {"convert", "errors", "spec"},
    "catalogue": {"errors", "parts"},
    "options": {"catalogue", "convert", "errors", "parts", "preprocessing", "spec"},
}
BASE = {
    **LIGHT,
    "files": {"errors"},
    "cache": {"errors", "files"},
    "loading": {"errors"},
    "terminal": set(),
    "presets": {"catalogue", "convert", "data", "errors", "options", "parts", "spec"},
    "arena": {"catalogue", "errors", "options", "presets"},
}
# cli → {serve → search, report → experiments → training → {objectives, search} → {models, data, evaluation} → method}; arrows pass on
ROOMS = {"method": {"errors"}}
for leaf in ("models", "data", "evaluation"):
    ROOMS[leaf] = {"method", *BASE} - {"arena", "cache", "options", "presets", "terminal"}
for room in ("objectives", "search"):
    ROOMS[room] = {"models", "data", "evaluation", *ROOMS["evaluation"]}
ROOMS["serve"] = {"search", "", *ROOMS["search"]}
ROOMS["training"] = {"objectives", "models", "data", "search", "evaluation", "method", *BASE} - {"arena", "presets"}
ROOMS["experiments"] = {"training", "arena", "presets", *ROOMS["training"]}
ROOMS["report"] = {"experiments", *ROOMS["experiments"]}
ROOMS["cli"] = {"serve", "report", "", *ROOMS["report"]}
ARROWS = {**BASE, **ROOMS, "__main__": {"cli"}, "": {*ROOMS, "catalogue", "errors", "presets"} - {"cli"}}  # "" is __init__
LIBRARIES = {
    **{name: set() for name in ("", "__main__", "arena", "presets", *LIGHT)},
    "files": {"yaml"},
    "cache": {"numpy", "filelock"},
    "loading": {"torch"},
    "terminal": {"rich"},
    "method": {"torch", "jaxtyping"},
    "evaluation": {"numpy", "torch", "faiss", "scipy", "sklearn", "jaxtyping"},
    "search": {"numpy", "torch", "faiss", "scipy", "jaxtyping", "pyarrow", "PIL", "filelock", "pymilvus", "milvus_lite"},
    "serve": {"numpy", "torch", "PIL", *EXTRAS["serve"]},
    "objectives": {"numpy", "torch", "scipy", "jaxtyping", "pytorch_metric_learning"},
    "models": {"torch", "jaxtyping", "timm", "safetensors", "huggingface_hub", "numpy", "onnxruntime", "onnxscript"},
    "cli": {"numpy", "torch"},
}
CORE = {"jaxtyping", "numpy", "torch"}
FULL = {*CORE, *EXTRAS["train"]}


def room_of(module: str) -> str:
    """`obdsd.method.targets` → `method`; `obdsd` itself → ``."""
    return [*module.split("."), ""][1]


def imports_of(path: Path) -> set[str]:
    """Full names of all modules that a file imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            names = {alias.name for alias in node.names}
            found |= {f"obdsd.{name}" if name in ARROWS else "obdsd" for name in names} if node.module == "obdsd" else {node.module}
    return found


FILES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}


@pytest.mark.parametrize("name", FILES)
def test_imports_follow_the_arrows(name):
    room = name.split("/")[0].removesuffix(".py").replace("__init__", "")
    assert room in ARROWS, f"{name} is in no room; give it one here, with what it may import"
    imports = imports_of(FILES[name])
    inside = {room_of(module) for module in imports if module.split(".")[0] == "obdsd"}
    assert inside - {room} <= ARROWS[room]
    outside = {module.split(".")[0] for module in imports} - {"obdsd"} - set(sys.stdlib_module_names)
    assert outside <= LIBRARIES.get(room, FULL | {*EXTRAS["report"], *EXTRAS["umap"]} if room == "report" else FULL)


def opened_without_encoding(path: Path) -> Iterator[str]:
    """Calls that read or write text as the locale says."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        mode = node.args[1:2] if isinstance(node.func, ast.Name) else node.args[:1]  # open(path, mode), path.open(mode)
        is_text = not mode or (isinstance(mode[0], ast.Constant) and "b" not in str(mode[0].value))
        if name in ("read_text", "write_text") or (name == "open" and is_text):
            yield f"{path.name}:{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("name", FILES)
def test_text_is_utf8_whatever_the_locale(name):
    assert list(opened_without_encoding(FILES[name])) == []


def test_a_file_opened_as_the_locale_says_is_seen(tmp_path):
    calls = ["open(x)", "open(x, 'a')", "x.open()", "x.open('w')", "x.read_text()", "x.write_text('')"]
    good = ["open(x, 'rb')", "x.open('wb')", "Image.open(x)", "x.read_text(encoding='utf-8')", "open(x, encoding='utf-8')"]
    (tmp_path / "x.py").write_text("\n".join(calls + good))
    assert [line.partition(": ")[2] for line in opened_without_encoding(tmp_path / "x.py")] == calls


def loaded_by(code: str) -> set[str]:
    """Top-level packages in a fresh process after some code."""
    ends = "import sys; print(); print(*{name.partition('.')[0] for name in sys.modules})"
    printed = subprocess.run([sys.executable, "-c", f"{code}\n{ends}"], capture_output=True, text=True, check=True).stdout
    return set(printed.splitlines()[-1].split())


HEAVY = {"lightning", "timm", "faiss", "matplotlib", "torchvision", "pytorch_metric_learning", "sklearn", "plotly", "fastapi"}


@pytest.mark.parametrize(
    ("code", "without"),
    [
        ("import obdsd; obdsd.register; obdsd.InputError", {"torch", "numpy", "yaml", *HEAVY}),
        (f"import {', '.join(f'obdsd.{name}' for name in LIGHT)}", {"torch", "numpy", "yaml", *HEAVY}),
        ("import obdsd.presets; obdsd.presets.data_kind('glyphs')", {"torch", *HEAVY}),
        ("from obdsd.cli import main; main(['--help'])", {"torch", "numpy", *HEAVY}),
        ("from obdsd.cli import main; main(['train', '--help'])", {"torch", "numpy", *HEAVY}),
        ("import obdsd; obdsd.search.Index", {"torch", *HEAVY} - {"faiss"}),
        ("import obdsd; obdsd.SelfDistillation(1.0, targets=obdsd.BatchDiffusion(0.3)); obdsd.PreviousEpochTeacher", HEAVY),
    ],
    ids=["import obdsd", "light modules", "presets", "--help", "train --help", "an index", "the method"],
)
def test_importing_pulls_in_nothing_heavy(code, without):
    assert loaded_by(code) & without == set()


def test_rooms_need_no_import_of_their_own():
    """The README's line, in a fresh process; before, obdsd.training was there only if something else had imported it."""
    code = "import obdsd; print(obdsd.presets.preset('ms', 'x.npz').preset, obdsd.training.train.__name__)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "ms train\n"
    rooms = {"method", "objectives", "models", "data", "evaluation", "search", "training", "experiments", "report", "presets"}
    assert rooms <= {*dir(obdsd)}


def test_public_names_are_there_and_listed():
    assert sorted(obdsd.__all__) == dir(obdsd)
    assert all(getattr(obdsd, name) is not None for name in obdsd.__all__)
    with pytest.raises(AttributeError, match="module 'obdsd' has no attribute 'BatchDifusion'"):
        _ = obdsd.BatchDifusion
