"""Build sdist and wheel, look into them, install the wheel with the core alone and with everything, and use it: make test-package.

The second environment borrows the packages of the one that runs this script, unless `--download` is given: all but the wheel itself
was then installed by `.[dev]`. pip still checks that these satisfy `obdsd[all]`, but nobody sees them chosen and downloaded.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

from obdsd.errors import EXTRAS

ROOT = Path(__file__).parents[2]
WITH_TORCH = {"filelock", "jinja2"}  # torch itself needs these
SDIST = {".gitignore", "CHANGELOG.md", "CITATION.cff", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "src"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default="torch", help="which torch to install first, for example torch==2.13.0")
    parser.add_argument("--download", action="store_true", help="install obdsd[all] from the registry too: gigabytes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        wheel = build(place / "dist")
        core = Environment(place / "core")
        core.pip("install", options.torch)
        core.pip("install", str(wheel))
        use_the_core(core, place)
        full = Environment(place / "full")
        if options.download:
            full.pip("install", options.torch)
            full.pip("install", f"{wheel}[all]")
        else:
            full.borrow(wheel)
        use_everything(full, place)
    print("the package is as it should be")


class Environment:
    """A fresh virtual environment; commands run outside the repository, so that only what is installed is found."""

    def __init__(self, path: Path) -> None:
        print(f"{path.name}: a fresh environment", flush=True)
        venv.create(path, with_pip=True)
        self.path = path

    def pip(self, *arguments: str) -> None:
        self.run("pip", "--quiet", "--disable-pip-version-check", *arguments)

    def borrow(self, wheel: Path) -> None:
        """Install the wheel alone, and find all else where this script finds it."""
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", f"{wheel}[all]"], check=True)
        self.pip("install", "--no-deps", str(wheel))
        own = self.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
        (Path(own) / "borrowed.pth").write_text(sysconfig.get_path("purelib"))

    def run(self, command: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        words = [str(self.path / "bin" / command), *arguments]
        done = subprocess.run(words, cwd=self.path, capture_output=True, text=True, check=False)
        if done.returncode != code:
            sys.exit(f"{' '.join(words)}: exit code {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
        return done


def build(out: Path) -> Path:
    """The wheel; it and the sdist hold what they should and nothing else."""
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)], check=True, capture_output=True)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    tracked = subprocess.run(["git", "ls-files", "src/obdsd"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    sources = {name.removeprefix("src/") for name in tracked}
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    assert {name for name in held if ".dist-info/" not in name} == sources, sorted(held ^ sources)
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {name.partition("/")[0] for name in held} == SDIST, sorted(held)
    assert {name.removeprefix("src/") for name in held if name.startswith("src/")} == sources
    for file in (wheel, sdist):
        print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB")
    return wheel


def use_the_core(core: Environment, place: Path) -> None:
    """The README's first lines, and the command line as far as it goes."""
    absent = {package for packages in EXTRAS.values() for package in packages} - WITH_TORCH
    core.run("python", "-c", f"from importlib.util import find_spec; assert not [name for name in {absent} if find_spec(name)]")
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    last = next(place for place, block in enumerate(blocks) if "teacher.update(model)" in block)
    (place / "ten_lines.py").write_text("\n".join(blocks[: last + 1]))
    core.run("python", str(place / "ten_lines.py"))
    core.run("obdsd", "info")
    core.run("obdsd", "--help")
    missing = core.run("obdsd", "train", "glyphs", code=2).stderr
    assert re.fullmatch(r'obdsd: \w+ is not installed; pip install "obdsd\[\w+\]" installs it\n', missing), missing
    print("core: the README's first lines run; a command that needs an extra says so in one line", flush=True)


def use_everything(full: Environment, place: Path) -> None:
    """Every command's help, and a short training from the built-in letters to its page."""
    where = full.run("python", "-c", "import obdsd; print(obdsd.__file__)").stdout
    assert where.startswith(str(full.path)), where
    commands = full.run("python", "-c", "from obdsd.cli import COMMANDS; print(*COMMANDS)").stdout.split()
    for command in commands:
        full.run("obdsd", command, "--help")
    run = place / "run"
    full.run("obdsd", "train", "glyphs", "--preset", "ms+obd-sd", "--epochs", "1", "--out", str(run))
    assert (run / "result.json").exists()
    assert (run / "report.html").stat().st_size > 100_000
    print(f"full: {', '.join(commands)} have help; a training of one epoch leaves its scores and its page", flush=True)


if __name__ == "__main__":
    main()
