"""Imports modules and forks a process for every rank that is asked for; `warm.py` starts it.

    python warm_server.py BUNDLE SOCKET MODULE...

It leaves when its standard input ends. Oldest Python: 3.6.
"""

import array
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, Dict, List, Optional, Tuple

ENGINE = {"PMIX_RANK", "PMI_RANK"}  # one of them is in the environment of a rank that an engine started
DESCRIPTORS = 3  # standard input, output and error


def main(bundle: str, place: str, *modules: str) -> int:
    """Serve until nobody needs it; in a forked process: run the program, and end with its exit code."""
    sys.path[0] = bundle
    importlib.import_module("stagebench.suite.worker.main")
    for module in modules:
        importlib.import_module(module)
    share_memory()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place + ".new")
    listener.listen(64)
    os.rename(place + ".new", place)  # who finds the socket can connect
    asked = serve(listener)
    if asked is None:
        return 0
    become(asked)
    code = 0
    try:
        runpy.run_path(asked["arguments"][0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    if not ENGINE.isdisjoint(os.environ):
        return code  # MPI is left when the interpreter ends
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the interpreter's own end would touch, and so copy, all that was imported


def share_memory() -> None:
    """Keep the garbage collector of forked processes off what is there already: it would copy every page."""
    gc.collect()
    if hasattr(gc, "freeze"):  # Python 3.7
        gc.freeze()


def serve(listener: socket.socket) -> "Optional[Dict[str, Any]]":
    """Fork for everybody who connects: what was asked, in the process that is to do it; None when it is time to go."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries those who attend
    while True:
        readable = select.select([listener, sys.stdin], [], [])[0]
        if sys.stdin in readable:
            return None
        connection = listener.accept()[0]
        if os.fork() == 0:
            listener.close()
            return attend(connection)
        connection.close()


def attend(connection: socket.socket) -> "Dict[str, Any]":
    """Fork the process itself and watch it: tell how it ended, or end it where nobody waits for it any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked, descriptors = received(connection)
    running, ended = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        connection.close()
        os.close(running)
        return dict(asked, descriptors=descriptors)
    for each in (ended, *descriptors):
        os.close(each)
    watched: List[Any] = [connection, running]
    while True:
        readable = select.select(watched, [], [], 0.1)[0]
        if running in readable:  # it has ended, or closed the pipe
            watched = [connection]
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid or connection in readable:
            with suppress(OSError):
                os.killpg(child, signal.SIGKILL)  # nothing that it started stays behind
            if pid:
                connection.sendall(str(status).encode())
            os._exit(0)


def received(connection: socket.socket) -> "Tuple[Dict[str, Any], List[int]]":
    """(what is asked for, the descriptors that came along)."""
    found, data = array.array("i"), b""
    while not data.endswith(b"\n"):
        more, beside, _, _ = connection.recvmsg(65536, socket.CMSG_LEN(DESCRIPTORS * found.itemsize))
        for level, kind, content in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                found.frombytes(content)
        if not more:
            os._exit(0)
        data += more
    return json.loads(data.decode()), list(found)


def become(asked: "Dict[str, Any]") -> None:
    """Take the place of a process that was started afresh."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in enumerate(asked["descriptors"]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    sys.argv = asked["arguments"]
    random.seed()
    sys.modules["numpy"].random.seed()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
