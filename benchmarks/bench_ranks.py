"""Two processes on one machine: what the global batch costs beside two batches of half its size, each process for itself."""

from __future__ import annotations

import json
import os
import socket
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies.ddp import DDPStrategy
from torch import multiprocessing

from benchmarks.harness import clustered_rows, median_interval, seconds_of, write
from obdsd import BatchDiffusion, SelfDistillation, objectives
from obdsd.training.ranks import Ranks

BATCHES, DIM, PROCESSES = (112, 512, 2048), 128, 2
PARAMETERS = 2_000_000  # whose gradients are averaged
ROUNDS = 15


def main() -> None:
    print("\nTwo processes", flush=True)
    with TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        multiprocessing.spawn(_measure, (folder, port), PROCESSES)
        found = json.loads((Path(folder) / "found.json").read_text())
    about = (
        f"; two processes of one thread, gloo over the loopback device, d = {DIM}. *Alone* is Multi-Similarity with OBD-SD, forwards and "
        "backwards, on each process's own half of the batch; *together* the same on the whole batch, rows gathered with their gradient. "
        "Medians of interleaved rounds, ratios paired."
    )
    rows = [_row(entry) for entry in found["batches"]]
    lines = [
        "| batch | alone, ms | together, ms | together / alone | of it the gather, ms |",
        "|---:|---:|---:|---|---:|",
        *(f"| {r['batch']} | {r['alone']:.2f} | {r['together']:.2f} | {r['ratio']} | {r['gather']:.2f} |" for r in rows),
        "",
        f"Averaging the gradients of {PARAMETERS:,} parameters: {found['average_ms']:.1f} ms.",
    ]
    write("Two processes", "ranks", about, lines, found)
    print("\n".join(lines))


def _row(entry: dict[str, Any]) -> dict[str, Any]:
    times = entry["seconds"]
    ratios = [t / a for a, t in zip(times["alone"], times["together"], strict=True)]
    low, high = median_interval(ratios)
    medians = {name: 1e3 * statistics.median(values) for name, values in times.items()}
    return {"batch": entry["batch"], **medians, "ratio": f"{statistics.median(ratios):.2f} [{low:.2f}, {high:.2f}], n = {len(ratios)}"}


def _measure(rank: int, folder: str, port: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": "2"}
    fabric = Fabric(accelerator="cpu", devices=PROCESSES, strategy=DDPStrategy())
    fabric.launch()
    ranks = Ranks(fabric)
    found: dict[str, Any] = {"batches": [_batch(ranks, batch) for batch in BATCHES]}
    parameter = torch.nn.Parameter(torch.zeros(PARAMETERS))
    parameter.grad = torch.ones(PARAMETERS)
    found["average_ms"] = 1e3 * statistics.median(seconds_of(lambda: ranks.average_gradients([parameter])) for _ in range(ROUNDS))
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))


def _batch(ranks: Ranks, batch: int) -> dict[str, Any]:
    half = batch // PROCESSES
    all_labels = torch.arange(batch // 2).repeat(2)
    order = all_labels.argsort(stable=True)  # two of a class next to each other, as in a batch
    own = order[ranks.rank * half : (ranks.rank + 1) * half]
    rows, labels = clustered_rows(batch, DIM)[own], all_labels[own]
    objective, distill = objectives.multi_similarity(), SelfDistillation(100.0, targets=BatchDiffusion(0.3))

    def loss(z: torch.Tensor, y: torch.Tensor) -> None:
        (objective(z, y) + distill(z, z.detach().roll(1, 1), progress=1.0)).backward()

    def gather() -> None:
        ranks.rows(rows.clone().requires_grad_()).sum().backward()

    work = {
        "alone": lambda: loss(rows.clone().requires_grad_(), labels),
        "together": lambda: loss(ranks.rows(rows.clone().requires_grad_()), ranks.all(labels)),
        "gather": gather,
    }
    for call in work.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, call in work.items():
            torch.distributed.barrier()
            seconds[name].append(seconds_of(call))
    return {"batch": batch, "seconds": seconds}


if __name__ == "__main__":
    main()
