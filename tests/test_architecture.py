"""The rooms and the arrows between them: who may import whom, and what `import obdsd` may not pull in."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import obdsd

SOURCE = Path(obdsd.__file__).parent
EVERYWHERE = {"errors", "files", "processes"}
ARROWS = {  # room: the rooms that it may import; cli → experiments → training → {objectives, models, data, evaluation} → method
    "errors": set(),
    "files": set(),
    "processes": set(),
    "options": set(),
    "settings": set(),
    "presets": {"settings"},
    "method": set(),
    "objectives": {"method"},
    "models": {"method", "options"},
    "data": {"method", "options"},
    "evaluation": {"method"},
    "training": {"objectives", "models", "data", "evaluation", "method", "options", "settings"},
    "experiments": {"training", "objectives", "models", "data", "evaluation", "method", "options", "settings", "presets", "report"},
    "report": set(),  # draws plain values, and knows nothing of where they come from
    "cli": {
        "experiments",
        "training",
        "objectives",
        "models",
        "data",
        "evaluation",
        "method",
        "options",
        "settings",
        "presets",
        "report",
        "",
    },
    "__main__": {"cli"},
    "": {"method", "objectives", "evaluation"},  # __init__ itself
}
LIBRARIES = {
    "method": {"torch", "jaxtyping"},
    "options": set(),
    "settings": set(),
    "presets": set(),
    "errors": set(),
    "files": {"yaml"},
    "processes": set(),
    "evaluation": {"numpy", "torch", "faiss", "scipy", "sklearn", "jaxtyping"},
    "report": {"numpy", "jinja2", "plotly"},
}


def room_of(module: str) -> str:
    """`obdsd.method.targets` → `method`; `obdsd` itself → ``."""
    return [*module.split("."), ""][1]


def imports_of(path: Path) -> set[str]:
    """Full names of all modules that a file imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
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
    imports = imports_of(FILES[name])
    inside = {room_of(module) for module in imports if module.split(".")[0] == "obdsd"}
    assert inside - {room} <= ARROWS[room] | EVERYWHERE
    outside = {module.split(".")[0] for module in imports} - {"obdsd"} - set(sys.stdlib_module_names)
    assert outside <= LIBRARIES.get(room, outside)


def test_importing_the_package_pulls_in_nothing_heavy():
    heavy = {"lightning", "timm", "faiss", "matplotlib", "torchvision"}
    first = "import obdsd, sys; assert 'torch' not in sys.modules"
    method = "obdsd.SelfDistillation(1.0, targets=obdsd.BatchDiffusion(0.3)); obdsd.PreviousEpochTeacher"
    code = f"{first}; {method}; print(sorted({heavy!r} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


PROMISED = [
    "symmetric_transition",
    "softmax_transition",
    "diffuse",
    "PairwiseTargets",
    "BatchDiffusion",
    "GlobalDiffusion",
    "ProxyDiffusion",
    "MeanMix",
    "UniformMix",
    "SelfDistillation",
    "TeacherBatch",
    "PreviousEpochTeacher",
    "EMATeacher",
    "FrozenTeacher",
    "MemoryTeacher",
    "objectives",
    "InputError",
    "__version__",
]


def test_promised_names_are_there_and_listed():
    for name in PROMISED:
        assert getattr(obdsd, name) is not None
        assert name in dir(obdsd)
    with pytest.raises(AttributeError, match="module 'obdsd' has no attribute 'BatchDifusion'"):
        _ = obdsd.BatchDifusion
