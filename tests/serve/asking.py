"""A client that sends what it is told to, byte for byte, and reads what comes back."""

import http.client
import json
import socket
from typing import Any, NamedTuple

from tests.started import PATIENCE

BOUNDARY = "a-line-between-parts"


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


class Client:
    def __init__(self, host, port, process, errors):
        self.host, self.port, self.process, self.errors = host, port, process, errors
        self.address = f"http://{host}:{port}"

    def lines(self):
        """What the server has printed to standard error."""
        return list(self.errors.queue)

    def ask(self, path, body=None, headers=None, method=None):
        """One request; JSON is read."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers or {})
        return read(connection)

    def search(self, image=None, name="query.png", **fields):
        return self.ask("/api/search", *form(image, name, **fields))

    def search_json(self, **fields):
        return self.ask("/api/search", json.dumps(fields), {"content-type": "application/json"})

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=PATIENCE)

    def begin(self, length, headers=()):
        """A connection on which a search was begun whose body of that length is to follow."""
        wire = self.connect()
        lines = [f"host: {self.host}", f"content-type: multipart/form-data; boundary={BOUNDARY}", f"content-length: {length}", *headers]
        wire.sendall(("\r\n".join(["POST /api/search HTTP/1.1", *lines]) + "\r\n\r\n").encode())
        return wire


def read(connection):
    response = connection.getresponse()
    content, headers = response.read(), {name.lower(): value for name, value in response.getheaders()}
    connection.close()
    return Answer(response.status, json.loads(content) if "json" in headers.get("content-type", "") else content, headers)


def read_wire(wire):
    """The answer on a connection that was written to by hand."""
    response = http.client.HTTPResponse(wire)
    response.begin()
    content = response.read()
    return response.status, json.loads(content) if content.startswith(b"{") else content


def form(image=None, name="query.png", **fields):
    """A body of multipart/form-data, and its headers."""
    parts = [f'content-disposition: form-data; name="{key}"\r\n\r\n{value}'.encode() for key, value in fields.items()]
    if image is not None:
        parts.append(f'content-disposition: form-data; name="image"; filename="{name}"\r\n\r\n'.encode() + image)
    between = f"--{BOUNDARY}".encode()
    body = b"".join(between + b"\r\n" + part + b"\r\n" for part in parts) + between + b"--\r\n"
    return body, {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
