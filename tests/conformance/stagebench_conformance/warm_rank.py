"""Stands for a rank or sidecar that a server forks (`warm_server`): ends as that one does, is killed with it.

    python warm_rank.py SOCKET SERVER_PID INTERPRETER -B -u PROGRAM ARGUMENT...

Where the server is gone, as when its framework cannot be imported, it becomes the program itself.
"""

import array
import json
import os
import signal
import socket
import sys
import time


def main(place: str, server: int, tokens: list[str]) -> int:
    """Ask for the rank and wait for its end."""
    while not os.path.exists(place):
        if gone(server):
            os.execv(tokens[0], tokens)
        time.sleep(0.01)
    asked = {"environ": dict(os.environ), "folder": os.getcwd(), "arguments": tokens[3:]}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
        data = json.dumps(asked).encode() + b"\n"
        connection.sendall(data[connection.sendmsg([data], descriptors) :])
        status = int(connection.recv(64) or b"256")
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    return os.WEXITSTATUS(status)


def gone(process: int) -> bool:
    """Whether it has ended, waited for or not."""
    try:
        with open(f"/proc/{process}/stat") as stream:
            return stream.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
