"""All tests with several processes, again and again beside a busy process: make test-chance. None may fail by chance."""

import subprocess
import sys
import time
from pathlib import Path

TESTS = [
    "training/test_ranks.py",
    "training/test_comparison_faults.py",
    "experiments/test_comparison.py",
    "test_loading.py",
    "training/test_faults.py::test_killed_with_images_and_loader_processes",
    "training/test_faults.py::test_signals_that_reach_the_loaders_processes",
]


def main(rounds: int) -> int:
    """0 if no round fails."""
    root, failed, start = Path(__file__).parents[1], 0, time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{each}" for each in TESTS)]
    busy = subprocess.Popen([sys.executable, "-c", "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"])
    try:
        for number in range(1, rounds + 1):
            done = subprocess.run(command, cwd=root, capture_output=True, text=True)
            failed += done.returncode != 0
            print(f"round {number} of {rounds}: {done.stdout.splitlines()[-1]}", flush=True)
            if done.returncode:
                print(done.stdout)
    finally:
        busy.kill()
        busy.wait()
    print(f"{failed} of {rounds} rounds failed, {(time.monotonic() - start) / 60:.0f} min")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
