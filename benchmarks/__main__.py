"""`python -m benchmarks [NAME …]`: all benchmarks, or those named."""

import argparse
import importlib
import subprocess
from pathlib import Path

NAMES = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))

parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure speed and memory against peers.")
parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)} (default: all)")
parser.add_argument("--dirty", action="store_true", help="measure though there are changes that are not committed")
options = parser.parse_args()
names = options.names
unknown = set(names) - set(NAMES)
if unknown:
    parser.error(f"no benchmark called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
changed = ["git", "status", "--porcelain", "--", ".", ":!benchmarks/results"]
if not options.dirty and subprocess.run(changed, cwd=Path(__file__).parents[1], capture_output=True, check=False).stdout:
    parser.error("there are changes that are not committed, and results name the commit; commit first, or add --dirty")
for name in names or NAMES:
    importlib.import_module(f"benchmarks.bench_{name}").main()
