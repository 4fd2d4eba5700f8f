"""All tests with several processes, again and again, two rounds at a time beside a busy process: make test-chance. None may fail."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = [
    "training/test_ranks.py",
    "training/test_comparison_faults.py",
    "experiments/test_comparison.py::test_several_processes_give_the_same_numbers",
    "experiments/test_comparison.py::test_a_fault_in_another_process_is_named_and_ends_the_other_runs_at_once",
    "test_loading.py",
    "training/test_faults.py::test_killed_with_images_and_loader_processes",
    "training/test_faults.py::test_signals_that_reach_the_loaders_processes",
]
COMMAND = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{each}" for each in TESTS)]
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"  # it ends with whoever started it


def one_round(number: int) -> bool:
    """Whether nothing failed."""
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True)
    print(f"round {number}: {done.stdout.splitlines()[-1]}{done.stdout if done.returncode else ''}", flush=True)
    return done.returncode == 0


def main(rounds: int) -> int:
    """0 if no round fails."""
    start, busy = time.monotonic(), subprocess.Popen([sys.executable, "-c", BUSY])
    with ThreadPoolExecutor(2) as pool:
        passed = sum(pool.map(one_round, range(1, rounds + 1)))
    busy.kill()
    busy.wait()
    print(f"{rounds - passed} of {rounds} rounds failed, {(time.monotonic() - start) / 60:.0f} min")
    return 0 if passed == rounds else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
