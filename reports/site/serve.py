"""A run's pages on this machine, made anew when the run has gone on; an open page then loads itself again."""

from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from reports.site.frame import FOLLOW
from reports.site.many import runs_in, write
from suite.errors import RequestError, StagebenchError, StoreError
from suite.worker.homes import without_homes

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

    def __init__(self, *arguments: Any, site: "Site", **more: Any) -> None:
        self.site = site
        super().__init__(*arguments, directory=str(site.output), **more)

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
        """Answer with a file of the site, or with the moment of the last record; an error is a page, too."""
        try:
            self._answer()
        except (StagebenchError, OSError, ValueError) as error:
            if not isinstance(error, ConnectionError):
                self._failed(str(error))

    def _answer(self) -> None:
        if self.path in (CHANGED, FOLLOW):
            changed = f'stagebench.changed("{self.site.last()}");'
            self.send_response(200)
            self.send_header("Content-Type", "text/javascript")
            self.end_headers()
            self.wfile.write((changed if self.path == CHANGED else self.site.follow).encode())
            return
        if self.path.endswith((".html", "/")):
            self.site.update()
        super().do_GET()

    def _failed(self, why: str) -> None:
        """Say why there is no page, and have the browser ask again: a run that begins has no cases at first."""
        self.send_response(HTTPStatus.INTERNAL_SERVER_ERROR)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Refresh", str(SOON))
        self.end_headers()
        self.wfile.write(f"There is no page yet: {without_homes(why)}\n".encode())

    def end_headers(self) -> None:
        """Nothing is kept by browsers: a run continues."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing: a browser asks often."""


class Site:
    """The pages of the runs below a folder."""

    def __init__(self, directory: Path, output: Path, every: int = EVERY) -> None:
        self.directory, self.output = directory, output
        self.every = every  # seconds between an open page's questions
        self.follow = ""  # the script of an open page, which asks for changes
        self._made, self._lock = -1.0, Lock()

    def last(self) -> float:
        """When a record came last."""
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


def server(directory: Path, output: Path, port: int, every: int = EVERY) -> ThreadingHTTPServer:
    """A server on this machine alone (port 0: a free one); RequestError for a port that is taken.

    An open page asks whether it has changed, with `every` seconds between its questions.
    """
    site = Site(directory, output, every)
    with suppress(StoreError):  # which a browser is told
        site.update()
    try:
        return ThreadingHTTPServer((HERE[0], port), partial(Pages, site=site))
    except OSError as error:
        raise RequestError(f"cannot listen on port {port}: {error.strerror}; name another one with --port") from error
