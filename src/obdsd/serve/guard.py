"""What stands before the app: who may ask, how much, how fast, and how many at once."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse

from obdsd.serve.limits import Limits

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
HERE = frozenset({"127.0.0.1", "localhost", "[::1]"})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """An app that answers only requests within limits, and whose answers tell browsers to load and run nothing from elsewhere.

    A server that listens to this machine alone answers only to the names of this machine. Else a page from anywhere could let its own
    name point here, and read what is found.

    Args:
        app: The app.
        limits: How much a client may ask for.
        host: Where the server listens.
    """

    def __init__(self, app: App, limits: Limits, host: str) -> None:
        self.app, self.limits = app, limits
        self.names = {*HERE, host, f"[{host}]"} if is_loopback(host) else None
        self.under_way = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {**HEADERS, "cache-control": "no-store"}
                known = {name.lower() for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in own.items() if name.encode() not in known]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            return await refusal(scope, receive, guarded)
        if scope["method"] != "POST":
            return await self.app(scope, receive, guarded)
        self.under_way += 1
        try:
            await self.app(scope, self._bounded(receive), guarded)
        finally:
            self.under_way -= 1

    def _refusal(self, scope: Message) -> JSONResponse | None:
        """What a request is refused by before anything of its body is read."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        asked = re.sub(r":\d*$", "", headers.get("host", "")).lower()
        if self.names is not None and asked not in self.names:
            return _refused(403, f"host={asked[:100]!r} is no name of this server; it listens to this machine alone: use 127.0.0.1")
        if scope["method"] != "POST":
            return None
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.limits.max_bytes:
            return _refused(413, self._too_long())
        if self.under_way >= self.limits.max_waiting:
            refusal = _refused(503, f"{self.under_way} searches are under way, which is as many as this server takes; try again soon")
            refusal.headers["retry-after"] = "1"
            return refusal
        return None

    def _bounded(self, receive: Receive) -> Receive:
        """The body of a request, as far as it is short enough and comes in time."""
        clock = asyncio.get_running_loop().time
        length, latest, ended = 0, clock() + self.limits.seconds, False

        async def bounded() -> Message:
            nonlocal length, ended
            if ended:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), latest - clock())
            except asyncio.TimeoutError as late:
                line = f"the request did not arrive within {self.limits.seconds:g} seconds; send a smaller image"
                raise HTTPException(408, line) from late
            if message["type"] == "http.disconnect":
                raise HTTPException(400, "the client left before its request had arrived")
            length, ended = length + len(message.get("body", b"")), not message.get("more_body", False)
            if length > self.limits.max_bytes:
                raise HTTPException(413, self._too_long())
            return message

        return bounded

    def _too_long(self) -> str:
        return f"the request has more than the {self.limits.max_bytes / 1e6:g} MB that are taken; send a smaller image"


def _refused(status: int, line: str) -> JSONResponse:
    return JSONResponse({"detail": line}, status)
