"""The generator of queries: how it reads answers, and what becomes of queries without one."""

import asyncio
import contextlib
import socketserver
import threading
import time

import numpy as np
import pytest

from stagebench.suite.worker import infer_messages, protocols
from stagebench.suite.worker.generator import Generator, Target
from stagebench.suite.worker.http_link import _joined

WHOLE = b"3\r\nabc\r\n2;kind=last\r\nde\r\n0\r\n\r\n"


def test_a_body_may_come_in_chunks():
    assert _joined(WHOLE) == b"abcde"


@pytest.mark.parametrize("come", [0, 1, 4, 9, len(WHOLE) - 1])
def test_chunks_are_waited_for(come):
    assert _joined(WHOLE[:come]) is None


@pytest.fixture
def ran(tmp_path):
    """Gives the result of queries, 1 ms apart, to a server that handles each connection so."""
    files = [str(tmp_path / name) for name in ("queries.npy", "right.npy")]
    for file in files:
        np.save(file, np.zeros((2, 3), np.float32))

    def result(handle, count, patience):
        kind = type("Handler", (socketserver.StreamRequestHandler,), {"handle": handle})
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), kind)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        loop = asyncio.new_event_loop()
        generator = Generator(Target("127.0.0.1", server.server_address[1], "/", "raw", *files, 1e-4, 0), loop)
        due = [number / 1000 for number in range(count)]
        try:
            return loop.run_until_complete(generator.run({"due": due, "hopeless_s": 60.0, "patience_s": patience}))
        finally:
            generator.close()
            loop.run_until_complete(asyncio.sleep(0.01))  # closed connections are noticed
            loop.close()
            server.shutdown()
            thread.join()
            server.server_close()

    return result


def test_queries_that_get_no_answer_have_timed_out_and_took_some_time(ran):
    found = ran(lambda handler: handler.rfile.read(), 20, 0.05)
    assert (found["timed_out"], found["latency_s"], found["trouble"]) == (20, [], "nothing came back in time")
    assert 0 < found["wall_s"] < 60


@pytest.mark.parametrize(("version", "field"), [("1.0", ""), ("1.1", "Connection: close\r\n")])
def test_a_connection_that_the_server_closes_is_not_used_again(ran, version, field):
    def once(handler):
        while handler.rfile.readline() not in (b"\r\n", b""):
            pass
        handler.rfile.read(12)
        head = "HTTP/{} 200 OK\r\nContent-Length: 12\r\n{}\r\n".format(version, field)
        with contextlib.suppress(OSError):  # the generator may have closed it
            handler.wfile.write(head.encode() + bytes(12))
            time.sleep(0.005)  # it closes later than it answers

    found = ran(once, 100, 60.0)
    assert (len(found["latency_s"]), found["failed"], found["wrong"]) == (100, 0, 0)


LIKE = np.arange(40, dtype=np.float32)
# A model's name, a version and one output's bytes, as Triton answers.
MESSAGE = b"\x0a\x07queries\x12\x011" + b"\x32\xa0\x01" + LIKE.tobytes()


def test_an_answer_over_grpc_is_its_raw_contents():
    assert infer_messages.answer(MESSAGE) == LIKE.tobytes()
    assert (protocols.answer(protocols.GRPC, {}, MESSAGE, LIKE) == LIKE).all()


@pytest.mark.parametrize("body", [b"", MESSAGE[:9], MESSAGE[:-1], MESSAGE + b"\x08\x01", b"\xff" * 99, b"\x32\x00"])
def test_a_message_that_is_no_answer_is_malformed(body):
    assert protocols.answer(protocols.GRPC, {}, body, LIKE) is None
