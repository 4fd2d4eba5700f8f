"""`obdsd serve` under many clients: how long they wait, how much is answered, what memory it takes, and how it ends."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.harness import write
from obdsd.data import open_data
from obdsd.search import Index

PHOTOS, SMALL, LARGE = 1_000, (640, 480), (4_000, 3_000)
CLIENTS, SECONDS, FOUND, QUERIES = 32, 60.0, 12, 16
MODEL = "tf_efficientnet_lite0:offline"
BOUNDARY = "a-line-between-parts"
HEADERS = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}


def write_photos(folder: Path) -> None:
    """Letters on uneven paper, in 100 class folders; and queries of other letters, `small` and `large`."""
    letters, rng = open_data("glyphs")["train"], np.random.default_rng(0)
    grain = rng.normal(0, 12, (SMALL[1], SMALL[0], 3))
    for number, item in enumerate(rng.permutation(len(letters))[: PHOTOS + QUERIES]):
        image, label, _ = letters[int(item)]
        pixels = np.asarray(image.convert("RGB").resize(SMALL)) + np.roll(grain, number, axis=(0, 1))
        photo = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        place = folder / "photos" / f"{label % 100}" if number < PHOTOS else folder / "small"
        place.mkdir(parents=True, exist_ok=True)
        photo.save(place / f"{number}.jpg", quality=90)
        if number >= PHOTOS:
            (folder / "large").mkdir(exist_ok=True)
            photo.resize(LARGE).save(folder / "large" / f"{number}.jpg", quality=90)


class Served:
    """The server in a process of its own; gone at the end."""

    def __init__(self, index: Path) -> None:
        command = [sys.executable, "-u", "-m", "obdsd", "serve", str(index), "--port", "0", "--device", "cpu"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        assert found is not None
        self.port = int(found[1])

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def mib(self, field: str) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def form(image: bytes, rerank: bool) -> bytes:
    head = 'content-disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    fields = [head.format(name, value).encode() for name, value in (("k", FOUND), ("rerank", str(rerank).lower()))]
    fields.append(b'content-disposition: form-data; name="image"; filename="photo.jpg"\r\n\r\n' + image + b"\r\n")
    between = f"--{BOUNDARY}".encode()
    return b"".join(between + b"\r\n" + field for field in fields) + between + b"--\r\n"


def timed(connection: http.client.HTTPConnection, path: str, body: bytes | None = None) -> tuple[float, int, bytes]:
    """Milliseconds, status and content of one request."""
    start = time.perf_counter()
    connection.request("GET" if body is None else "POST", path, body, {} if body is None else HEADERS)
    response = connection.getresponse()
    content = response.read()
    return 1e3 * (time.perf_counter() - start), response.status, content


def visit(served: Served, bodies: list[bytes], first: int, end: float) -> dict[str, Any]:
    """A client that sends a photo, loads the pictures of what was found, and so on, until the end."""
    seen: dict[str, Any] = {"search": [], "picture": [], "errors": []}
    connection = served.connection()
    for turn in itertools.count(first):
        if time.perf_counter() > end:
            break
        try:
            took, status, content = timed(connection, "/api/search", bodies[turn % len(bodies)])
            if status != 200 or len(found := json.loads(content)["found"]) != FOUND:
                seen["errors"].append(f"{status} {content[:200]!r}")
                continue
            seen["search"].append(took)
            for hit in found:
                took, status, content = timed(connection, hit["image"])
                if status != 200 or not content.startswith(b"RIFF"):
                    seen["errors"].append(f"{status} {content[:200]!r}")
                seen["picture"].append(took)
        except OSError as fault:
            seen["errors"].append(repr(fault))
            connection = served.connection()
    connection.close()
    return seen


def load(served: Served, name: str, folder: Path, clients: int, seconds: float) -> dict[str, Any]:
    """So many clients for so long."""
    bodies = [form(path.read_bytes(), turn % 2 == 1) for turn, path in enumerate(sorted(folder.iterdir()))]
    memory, start, ended = [served.mib("VmRSS")], time.perf_counter(), threading.Event()

    def watch() -> None:
        while not ended.wait(seconds / 6):
            memory.append(served.mib("VmRSS"))

    with ThreadPoolExecutor(clients + 1) as threads:
        threads.submit(watch)
        visits = list(threads.map(lambda number: visit(served, bodies, number, start + seconds), range(clients)))
        took = time.perf_counter() - start
        ended.set()
    times = {kind: sorted(itertools.chain.from_iterable(each[kind] for each in visits)) for kind in ("search", "picture")}
    errors = [error for each in visits for error in each["errors"]]
    entry: dict[str, Any] = {"load": name, "clients": clients, "seconds": took, "errors": len(errors), "first_errors": errors[:3]}
    for kind, found in times.items():
        entry[kind] = {"count": len(found), "per_second": len(found) / took, "p50_ms": statistics.median(found)}
        entry[kind]["p95_ms"] = found[int(0.95 * (len(found) - 1))]
    return entry | {"rss_mib": memory, "peak_mib": served.mib("VmHWM")}


def ended_in_the_middle(served: Served, body: bytes) -> dict[str, Any]:
    """Half of a request from every client, SIGTERM, the other half: how many are answered, and how the server ends."""
    connections, half = [served.connection() for _ in range(CLIENTS)], len(body) // 2
    for connection in connections:
        connection.putrequest("POST", "/api/search")
        connection.putheader("content-length", str(len(body)))
        for header in HEADERS.items():
            connection.putheader(*header)
        connection.endheaders(body[:half])
    timed(served.connection(), "/healthz")  # by now the server has seen all of them
    start = time.perf_counter()
    served.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    for connection in connections:
        connection.send(body[half:])
    statuses = [connection.getresponse().status for connection in connections]
    code = served.process.wait(300)
    return {"under_way": CLIENTS, "answered": statuses.count(200), "exit_code": code, "seconds": time.perf_counter() - start}


def main() -> None:
    print("\nServing an index", flush=True)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_photos(folder)
        Index.build(MODEL, f"folder:{folder / 'photos'}", folder / "photos.index", rerank=["diffusion"])
        served = Served(folder / "photos.index")
        try:
            loads = []
            for each in (
                ("640 x 480", folder / "small", 1, SECONDS / 4),
                ("640 x 480", folder / "small", CLIENTS, SECONDS),
                ("4,000 x 3,000", folder / "large", CLIENTS, SECONDS),
            ):
                loads.append(load(served, *each))
                print(f"  {loads[-1]}", flush=True)
            end = ended_in_the_middle(served, form(next((folder / "small").iterdir()).read_bytes(), True))
            print(f"  {end}", flush=True)
        finally:
            served.process.kill()
    lines = [*table(loads), *conclusion(loads, end)]
    write("Serving an index", "serve", ". Clients and server share the machine.", lines, {"loads": loads, "end": end})


def table(loads: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"`obdsd serve` of {PHOTOS:,} photos of {SMALL[0]} x {SMALL[1]} pixels by {MODEL}. Each client sends a photo over a connection "
        f"that stays open, every other one re-ranked by diffusion, and loads the {FOUND} pictures of what was found; then it begins anew.",
        "",
        "| photos sent | clients | s | searches | a second | p50, ms | p95, ms | pictures | p50, ms | p95, ms | errors | MiB | peak |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|",
    ]
    for entry in loads:
        search, picture = entry["search"], entry["picture"]
        cells = [entry["load"], f"{entry['clients']}", f"{entry['seconds']:.0f}", f"{search['count']:,}", f"{search['per_second']:.1f}"]
        cells += [f"{search['p50_ms']:.0f}", f"{search['p95_ms']:.0f}", f"{picture['count']:,}"]
        cells += [f"{picture['p50_ms']:.0f}", f"{picture['p95_ms']:.0f}", f"{entry['errors']}"]
        cells += [" ".join(f"{mib:.0f}" for mib in entry["rss_mib"]), f"{entry['peak_mib']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def conclusion(loads: list[dict[str, Any]], end: dict[str, Any]) -> list[str]:
    faults = "; ".join(error for entry in loads for error in entry["first_errors"])
    return [
        "",
        "Memory is what the server holds (resident), at the beginning of each load and at every sixth of it.",
        f"SIGTERM while {end['under_way']} clients were in the middle of a request: {end['answered']} of these were answered, exit code "
        f"{end['exit_code']}, {end['seconds']:.1f} s later. Load average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.",
        *([f"First errors: {faults}"] if faults else []),
    ]
