"""`python -m benchmarks [NAME …]`: all benchmarks, or those named."""

import argparse
import importlib
from pathlib import Path

NAMES = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))

parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure speed and memory against peers.")
parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)} (default: all)")
names = parser.parse_args().names
unknown = set(names) - set(NAMES)
if unknown:
    parser.error(f"no benchmark called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
for name in names or NAMES:
    importlib.import_module(f"benchmarks.bench_{name}").main()
