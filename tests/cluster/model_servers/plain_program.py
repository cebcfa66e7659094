"""A model server of Python's own library, which answers one query at a time; FAULT names what it does wrong."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from stagebench.suite.worker.shared_answers import Answers, served

TOLD, FAULT = served(), os.environ.get("FAULT", "")
STATUSES = {"refuses": 429, "gives up": 504, "fails": 500}
KNOWN = {}  # answers by their queries
FIRST = 3  # answers that are right, so that it is ready


def spoilt(number, answer, before):
    """Status and answer of a query after the first ones."""
    if FAULT == "dies":
        sys.stderr.write("no more\n" + "\tat the.stack.of(Java.java:1)\n" * 9)
        os._exit(3)
    if FAULT == "forgets one" and number == FIRST:
        time.sleep(600)
    answer = {"swaps": before[0], "says nothing": b""}.get(FAULT, answer)
    return STATUSES.get(FAULT, 200), answer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    lock = threading.Lock()
    answers = None
    given = ()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            number, before = len(self.given), self.given[-1:]
            if FAULT == "is killed" and number >= FIRST:
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
            status, answer = 200, KNOWN.get(body) or self.answers.of([body])[0]
            type(self).given += (answer,)
            if FAULT == "remembers":
                KNOWN[body] = answer
        if number >= FIRST:
            status, answer = spoilt(number, answer, before)
        elif FAULT == "is late once" and number == 1:
            time.sleep(0.3)
        self.send_response(status)
        self.send_header("Content-Length", len(answer))
        self.end_headers()
        with contextlib.suppress(OSError):  # nobody waits for it any more
            self.wfile.write(answer[::-1] if FAULT == "lies" else answer)

    def log_message(self, *arguments):
        pass


if FAULT == "never is ready":
    threading.Event().wait()
Handler.answers = Answers(TOLD)
ThreadingHTTPServer.request_queue_size = 128  # the generator opens many connections at once
server = ThreadingHTTPServer((TOLD.host, TOLD.port), Handler)
if FAULT == "leaves a process":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
server.serve_forever()
