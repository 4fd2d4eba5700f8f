"""A model, not a measurement, of what a step costs beyond the network's own work when many GPUs share it. Prints docs/scaling.md's table.

python -m benchmarks.scaling
"""

from __future__ import annotations

from scipy.optimize import brentq

PER_GPU, DIM, PARAMETERS = 112, 128, 25_600_000  # a batch of the paper on every GPU; ResNet50
FLOPS = 10e12  # float32 operations a second that a Cholesky factorisation reaches
BANDWIDTH = 50e9  # bytes a second into each GPU
NETWORK_SECONDS = 0.2  # forwards and backwards with 112 images of 224 px, and the teacher's forward pass
SHARE = 0.1  # of the network's time that the solve may take before it pays to share it


def rows(gpus: int) -> int:
    return gpus * PER_GPU


def gathered_bytes(gpus: int) -> float:
    """Into each GPU: the student's and the teacher's rows, and backwards the sum of the rows' gradients (twice, as a ring does it)."""
    return (gpus - 1) / gpus * 4 * rows(gpus) * DIM * 4


def gradient_bytes(gpus: int) -> float:
    return 2 * (gpus - 1) / gpus * PARAMETERS * 4


def solve_seconds(batch: float) -> float:
    """Cholesky of (b, b), two triangular solves for d columns, and the product that gives the targets."""
    return (batch**3 / 3 + 2 * batch**2 * DIM + 2 * batch**2 * DIM) / FLOPS


def solve_bytes(batch: float) -> float:
    return 4 * batch**2 * 4  # as measured: four matrices of float32


def border() -> int:
    """The batch at which the solve takes its share of the network's time."""
    return round(brentq(lambda batch: solve_seconds(batch) - SHARE * NETWORK_SECONDS, 1, 1e6))


def table() -> str:
    lines = [
        "| GPUs | batch | rows gathered, MB | in ms | gradients averaged, MB | in ms | solve on every GPU, ms | its memory, GB |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for gpus in (8, 16, 32, 64, 128, 256, 512):
        batch, gathered, gradients = rows(gpus), gathered_bytes(gpus), gradient_bytes(gpus)
        cells = [f"{gpus}", f"{batch:,}", f"{gathered / 1e6:.1f}", f"{1e3 * gathered / BANDWIDTH:.1f}", f"{gradients / 1e6:.0f}"]
        cells += [f"{1e3 * gradients / BANDWIDTH:.1f}", f"{1e3 * solve_seconds(batch):,.1f}", f"{solve_bytes(batch) / 1e9:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
    print(f"\nThe solve reaches {SHARE:.0%} of the network's {1e3 * NETWORK_SECONDS:.0f} ms at a batch of {border():,}.")
