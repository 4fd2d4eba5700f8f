"""A server on this machine that does what servers do: serve ranges or not, break off, be slow, have other bytes."""

import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server, begin = self.server, 0
        server.asked.append(self.headers["Range"])
        if self.path not in server.files:
            return self.send_error(server.missing)
        if server.ranges and self.headers["Range"]:
            begin = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        content = server.files[self.path]
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        body = content[begin:][: server.cuts.pop(0) if server.cuts else None]
        for start in range(0, len(body), 100_000):
            self.wfile.write(body[start : start + 100_000])
            time.sleep(server.slow)
        self.close_connection = True

    def log_message(self, *words): ...


@contextmanager
def serving(files, *, ranges=True, cuts=(), slow=0.0, missing=404):
    """A server of these files by path; each of the first connections ends after so many bytes as `cuts` says."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.files, server.ranges, server.cuts, server.slow, server.missing = files, ranges, list(cuts), slow, missing
        server.asked, server.daemon_threads = [], True
        server.handle_error = lambda *_: None  # whoever asked is gone
        server.address = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()
