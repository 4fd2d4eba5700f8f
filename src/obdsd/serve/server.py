"""The server: a socket, a process that ends when it is asked to, and little patience with clients that never finish."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from obdsd.errors import InputError
from obdsd.serve.app import make_app
from obdsd.serve.engine import Engine
from obdsd.serve.limits import Limits

CONNECTIONS = 500  # at once: a browser holds six
END_SECONDS = 30  # for what is under way when the server is asked to end, after its bodies have arrived
LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\nthe request did not arrive in time\n"


def listen(host: str, port: int) -> socket.socket:
    """A socket that clients can connect to from now on; they are answered once `serve` runs. Port 0 is a free one."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=CONNECTIONS)
    except OSError as fault:
        if fault.errno == errno.EADDRINUSE:
            remedy = "stop what listens there, or take another; 0 takes one that is free"
            raise InputError(f"port={port} is in use on {host}; {remedy}") from fault
        if fault.errno == errno.EACCES:
            raise InputError(f"port={port} is not for every user ({fault.strerror}); take one from 1024 on") from fault
        reason = str(fault.strerror).partition(" (")[0]
        raise InputError(f"host={host!r} cannot be listened at ({reason}); give an address of this machine") from fault
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it; else each answer may wait 40 ms
    return listening


def address(listening: socket.socket) -> str:
    """Where a browser finds the server."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def nothing() -> None:
    """Nobody is told."""


def serve(engine: Engine, listening: socket.socket, limits: Limits | None = None, ready: Callable[[], None] = nothing) -> None:
    """Answer until SIGTERM or Ctrl-C; requests that are under way then are still answered. A second Ctrl-C ends at once.

    Args:
        engine: What answers.
        listening: What `listen` gave.
        limits: How much a client may ask for.
        ready: Called when the first request would be answered, and a signal would be heeded.
    """
    limits = limits or Limits()
    warnings.filterwarnings("ignore", module=r"PIL\.")  # of what clients send: they are told what is wrong with it
    for name in ("python_multipart", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.ERROR)
    server = _Server(
        uvicorn.Config(
            make_app(engine, limits, host=listening.getsockname()[0]),
            http=_impatient(limits.seconds),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=round(limits.seconds) + END_SECONDS,
        )
    )
    server.ready = ready
    server.run(sockets=[listening])
    if server.force_exit:
        raise KeyboardInterrupt


class _Server(uvicorn.Server):
    """To be asked to end is this server's usual end, so no signal is raised again when all is done."""

    ready: Callable[[], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def _impatient(seconds: float) -> type[H11Protocol]:
    """HTTP that hangs up on clients who take longer to say what they want, or to finish a body that was refused already.

    uvicorn would wait without end. How long the body of a request may take is known to `Guard`.
    """

    class Impatient(H11Protocol):
        late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.look()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.look()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.forget()

        def look(self) -> None:
            """Start the clock when there is something to wait for, and stop it when there is not."""
            in_head, is_refused = self.conn.their_state is h11.IDLE, self.conn.our_state is h11.DONE
            if not in_head and not is_refused:
                self.forget()
            elif self.late is None:
                self.late = self.loop.call_later(seconds, self.hang_up)

        def forget(self) -> None:
            if self.late is not None:
                self.late.cancel()
                self.late = None

        def hang_up(self) -> None:
            if self.conn.their_state is h11.IDLE:
                self.transport.write(LATE)
            self.transport.close()

    return Impatient
