"""Serves a live view on this machine alone: read-only, behind a token, to its own page and to nobody else's.

Other users of the machine, and pages of other origins in the same browser, can reach 127.0.0.1 as well. So every
request needs the token, a Host that is this server (a name that somebody else's DNS points here is none), and no
foreign Origin.
Of the run folder, pictures are given out by their plain names; there is no way to name another file.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import socket
import stat
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

ADDRESS = "127.0.0.1"
_NAMES = (ADDRESS, "localhost")
_PICTURE = re.compile(r"/picture/([A-Za-z0-9_][A-Za-z0-9_-]*\.png)")
_MOST_BYTES = 16 << 20
_FRESH_S = 0.5  # a look is shared by all pages that ask within this time
_PATIENCE_S = 10  # for a request to come whole, and for an answer to be taken
_MOST_CLIENTS = 64  # at once; a browser has a handful
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

View = Mapping[str, Any]


class Pages(Protocol):
    """Draws what is served. `policy` is what the page's own Content-Security-Policy allows."""

    policy: str

    def whole(self, view: View, token: str) -> str: ...

    def part(self, view: View, token: str) -> str: ...

    def plain(self, view: View) -> str: ...


class LiveServer(ThreadingHTTPServer):
    """`look` reads the run; `url` is what to open."""

    daemon_threads = True

    def __init__(self, run: Path, look: Callable[[], View], pages: Pages, port: int = 0) -> None:
        super().__init__((ADDRESS, port), _Answer)
        self.token = secrets.token_urlsafe(32)
        self.run_folder = run
        self.pages = pages
        self._look = look
        self._looking = threading.Lock()
        self._places = threading.BoundedSemaphore(_MOST_CLIENTS)
        self._seen: tuple[float, View] | None = None

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_address[1]}/?token={self.token}"

    def view(self) -> View:
        """The latest look; one at a time, as looking keeps what it has read."""
        with self._looking:
            if self._seen is None or time.monotonic() - self._seen[0] > _FRESH_S:
                view = self._look()
                self._seen = (time.monotonic(), view)
            return self._seen[1]

    def admits(self, host: str, origin: str | None, site: str | None) -> bool:
        """Whether a request is from this server's own page or from a person who typed the address."""
        hosts = {f"{name}:{self.server_address[1]}" for name in _NAMES}
        own = origin is None or (origin.startswith("http://") and origin.removeprefix("http://") in hosts)
        return host in hosts and own and site in (None, "none", "same-origin")

    def process_request(self, request: Any, client_address: Any) -> None:
        """A client that drips byte by byte is cut at the deadline, and more than a crowd of them wait for no thread."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        cut = threading.Timer(_PATIENCE_S, _cut, (request,))
        cut.daemon = True
        cut.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            cut.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has gone is no news."""


class _Answer(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = _PATIENCE_S
    server_version, sys_version = "hotlap", ""
    protocol_version = "HTTP/1.0"  # one request each: nothing of a refused one is read further

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if not self.server.admits(
            self.headers.get("Host", ""), self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site")
        ):
            return self._refuse(HTTPStatus.FORBIDDEN, "this page is for its own machine and origin")
        if not self._has_token(url.query):
            return self._refuse(HTTPStatus.FORBIDDEN, "the token is missing or wrong")
        try:
            return self._answer(url.path)
        except OSError:
            raise
        except Exception as error:
            return self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, type(error).__name__)

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, path: str) -> None:
        server = self.server
        if path == "/":
            self._send(server.pages.whole(server.view(), server.token).encode(), "text/html; charset=utf-8")
        elif path == "/view":
            self._send(server.pages.part(server.view(), server.token).encode(), "text/html; charset=utf-8")
        elif path == "/view.json":
            self._send(server.pages.plain(server.view()).encode(), "application/json")
        elif (found := _PICTURE.fullmatch(path)) and (content := picture(server.run_folder, found[1])):
            self._send(content, "image/png")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def _has_token(self, query: str) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        given = given or parse_qs(query).get("token", [""])[0]
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.server.token.encode())

    def _send(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", self.server.pages.policy)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(f"hotlap: {why}.\n".encode(), "text/plain; charset=utf-8", status)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Of http.server's own: a method that is not GET, a request that is none. Nothing of it is repeated."""
        self._refuse(HTTPStatus(code), "only GET is answered" if code == 501 else "this is no request")

    def log_message(self, *_: Any) -> None:
        """The terminal is the user's, and a log would hold the token."""


def _cut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has gone by itself
        request.shutdown(socket.SHUT_RDWR)


def picture(run: Path, name: str) -> bytes | None:
    """A picture that lies in the run folder itself: no link, nothing that is not a file, nothing huge."""
    try:
        handle = os.open(
            run / name, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        )
    except OSError:
        return None
    try:
        facts = os.fstat(handle)
        is_plain = stat.S_ISREG(facts.st_mode) and facts.st_size <= _MOST_BYTES
        return os.read(handle, _MOST_BYTES) if is_plain else None
    finally:
        os.close(handle)
