"""A run's pages on this machine, made anew when the run has gone on; an open page then loads itself again."""

from contextlib import suppress
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from stagebench.reports.site.build import FOLLOW
from stagebench.reports.site.many import runs_in, write
from stagebench.suite.errors import RequestError, StagebenchError, StoreError
from stagebench.suite.worker.homes import without_homes

CHANGED = "/changed.js"
HERE = ("127.0.0.1", "localhost")  # whom it answers to: a name that leads here as well would let others read along
SOON = 5  # seconds until a browser asks again for pages that could not be made
EVERY = 30  # seconds between an open page's questions: making pages takes time from what is being measured
FOLLOWING = """
const asking = setInterval(() => document.head.append(stagebench.el("script", {{ src: "{changed}" }})), {every}000);
stagebench.changed = (last) => {{
  if (last === "{last}") return;
  clearInterval(asking); // a page may take longer to make than until the next question, which would begin it anew
  location.reload();
}};
"""


class Pages(SimpleHTTPRequestHandler):
    """Serves the site; asked for a page, it looks first whether a run has new records."""

    server: "Server"

    def __init__(self, request: Any, client: Any, server: "Server") -> None:
        super().__init__(request, client, server, directory=str(server.output))

    def parse_request(self) -> bool:
        """Read a request; one that was meant for another host, as a strange site's page sends it, is refused."""
        if not super().parse_request():
            return False
        host = self.headers.get("Host", HERE[0])
        if host.rpartition(":")[0] in HERE or host in HERE:
            return True
        self.send_error(HTTPStatus.MISDIRECTED_REQUEST, explain=f"These pages are at http://{HERE[0]}, not at {host}.")
        return False

    def do_GET(self) -> None:
        """Answer with a file of the site, or with the moment of the last record; an error is a page, too.

        The browser asks again for that page: a run that begins has no cases at first.
        """
        try:
            if self.path == FOLLOW:
                self._send(HTTPStatus.OK, "text/javascript", self.server.follow)
            elif self.path == CHANGED:
                self._send(HTTPStatus.OK, "text/javascript", f'stagebench.changed("{self.server.last()}");')
            else:
                if self.path.endswith((".html", "/")):
                    self.server.update()
                super().do_GET()
        except ConnectionError:
            pass
        except (StagebenchError, OSError, ValueError) as error:
            text = f"There is no page yet: {without_homes(str(error))}\n"
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", text)

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status != HTTPStatus.OK:
            self.send_header("Refresh", str(SOON))
        self.end_headers()
        self.wfile.write(text.encode())

    def end_headers(self) -> None:
        """Forbid browsers to keep anything: a run continues."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing: a browser asks often."""


class Server(ThreadingHTTPServer):
    """Serves the pages of the runs below a folder on this machine alone (port 0: a free one).

    An open page asks whether it has changed, with `every` seconds between its questions.
    """

    def __init__(self, directory: Path, output: Path, port: int, every: int = EVERY) -> None:
        """RequestError for a port that is taken."""
        self.directory, self.output, self.every = directory, output, every
        self.follow = ""  # the script of an open page, which asks for changes
        self._made, self._lock = -1.0, Lock()
        with suppress(StoreError):  # which a browser is told
            self.update()
        try:
            super().__init__((HERE[0], port), Pages)
        except OSError as error:
            raise RequestError(
                f"cannot listen on port {port}: {error.strerror}; name another one with --port"
            ) from error

    def last(self) -> float:
        """Return the moment of the last record."""
        places = (place for run in runs_in(self.directory) for place in (run, run / "records"))
        return max(place.stat().st_mtime for place in places if place.exists())

    def update(self) -> None:
        """Make the pages again if records came since."""
        with self._lock:
            last = self.last()
            if last > self._made:
                write(runs_in(self.directory), self.output, below=self.directory, served=True)
                self.follow = FOLLOWING.format(last=last, changed=CHANGED, every=self.every)
                self._made = last
