"""A model server of Python's own library, which answers one query at a time; FAULT names what it does wrong."""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from suite.worker.shared_answers import Answers, served

TOLD, FAULT = served(), os.environ.get("FAULT", "")
STATUSES = {"refuses": 429, "gives up": 504, "fails": 500}
FIRST = 3  # answers that are right, so that it is ready


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    lock = threading.Lock()
    answers = None
    given = ()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            status, answer = 200, self.answers.of([body])[0]
            type(self).given += (answer,)
            late = len(self.given) > FIRST
        if FAULT == "dies" and late:
            sys.stderr.write("no more\n")
            os._exit(3)
        if late and FAULT == "swaps":
            answer = self.given[-2]
        elif late and FAULT == "says nothing":
            answer = b""
        elif late and FAULT in STATUSES:
            status = STATUSES[FAULT]
        if FAULT == "lies":
            answer = answer[::-1]
        self.send_response(status)
        self.send_header("Content-Length", len(answer))
        self.end_headers()
        self.wfile.write(answer)

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
