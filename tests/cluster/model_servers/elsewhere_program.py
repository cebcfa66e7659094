"""A server elsewhere: of a network's file, with a predictor of its own, in each of the protocols at paths of its own.

elsewhere_program.py FILE FAULT: it prints its port; FAULT names what it does wrong, after the first answers.
"""

import contextlib
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime

SESSION, FAULT = onnxruntime.InferenceSession(sys.argv[1]), sys.argv[2]
JSON = ("/v1/models/net:predict", "/invocations")
READY = ("/v1/models/net", "/ping", "/v2/models/net/ready")
FIRST = 1  # answers that are right
SEEN = set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    given = ()

    def do_GET(self):
        self.reply(200, b"{}") if self.path in READY and FAULT != "loads" else self.missing()

    def missing(self):
        self.reply(404, b'{"error": "there is no such model"}')

    def do_POST(self):
        body, fields = self.rfile.read(int(self.headers["Content-Length"])), {}
        if self.path in JSON:
            logits = self.logits(json.loads(body)["instances"])
            answer = json.dumps({"predictions": logits.tolist()}).encode()
        elif self.path == "/v2/models/net/infer":
            size = int(self.headers["Inference-Header-Content-Length"])
            (query,), (wanted,) = (json.loads(body[:size])[name] for name in ("inputs", "outputs"))
            assert (query["name"], query["datatype"], wanted["name"]) == ("input", "FP32", "logits")
            logits = self.logits(np.frombuffer(body[size:], np.float32).reshape(query["shape"]))
            head = json.dumps({"outputs": [{"name": "logits", "parameters": {"binary_data_size": 40}}]}).encode()
            answer, fields = head + logits.tobytes(), {"Inference-Header-Content-Length": len(head)}
        elif self.path == "/numbers":
            answer = self.logits(np.frombuffer(body, np.float32).reshape(1, 1, 28, 28)).tobytes()
        else:
            self.missing()
            return
        if FAULT == "is slow" or (FAULT == "remembers" and body not in SEEN):
            time.sleep(0.02)
        SEEN.add(body)
        type(self).given += (answer,)
        number, status = len(self.given), 200
        if number > FIRST:
            status = 503 if FAULT == "refuses" else 200
            answer = {"says nothing": b"", "swaps": self.given[-2]}.get(FAULT, answer)
        self.reply(status, answer, fields)

    def logits(self, inputs):
        found = SESSION.run(None, {"input": np.asarray(inputs, np.float32)})[0]
        return found[:, ::-1] if FAULT == "lies" or (FAULT == "lies later" and self.given) else found

    def reply(self, status, body, fields=()):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **dict(fields)}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # nobody waits for it any more
            self.wfile.write(body)

    def log_message(self, *arguments):
        pass


ThreadingHTTPServer.request_queue_size = 128  # the generator opens many connections at once
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
sys.stdout.write(f"{server.server_port}\n")
sys.stdout.flush()
server.serve_forever()
