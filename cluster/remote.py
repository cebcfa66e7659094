"""On another host: run a program, and end it with all that it started when the login falls silent.

    python remote.py SECONDS PROGRAM ARGUMENT ...

Standard input is the lifeline: `cluster/lifeline.py` writes to it every few seconds as long
as the case lives. When it is closed, or nothing comes for SECONDS (a link was cut), the
program ends. Ends with the program's exit code, or 128 + N for signal N, as a shell says it.
What only this host knows, it adds to the program's variables: see `own_variables`. Where this host's kernel ended
processes for want of memory meanwhile, it says so in engine.jsonl beside itself (suite.contracts.engine_messages).

Launched by the framework's own interpreter. Oldest Python: 3.6; standard library only.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Dict, List, Mapping, Set

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, SIOCGIFADDR = 1, 36, 0x8915
POLITE = 1.5  # seconds between SIGTERM and SIGKILL; the near side waits for 3
CANNOT_START = 127
LIBC = ctypes.CDLL(None)


def main(argv: List[str]) -> int:
    seconds, tokens = float(argv[1]), argv[2:]
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)  # what the program leaves behind becomes ours
    kills = oom_kills()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(wake)
    try:
        child = subprocess.Popen(
            tokens,
            env={**os.environ, **own_variables(os.environ)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    except OSError as error:
        sys.stderr.write("cannot start %s: %s\n" % (tokens[0], error.strerror))
        return CANNOT_START
    watch(child, woken, seconds)
    end(signal.SIGTERM, POLITE)
    end(signal.SIGKILL, POLITE)
    code = child.wait()
    if oom_kills() > kills:
        line = {"type": "oom kills", "time_s": time.time(), "host": socket.gethostname()}
        line["processes"] = oom_kills() - kills
        with contextlib.suppress(OSError), open(os.path.join(os.path.dirname(__file__), "engine.jsonl"), "a") as stream:
            stream.write(json.dumps(line) + "\n")
    return code if code >= 0 else 128 - code


def oom_kills(root: str = "/") -> int:
    """Those of this process's control group (version 2, or 1), else of the whole host, as suite.processes.oom has."""
    files = []
    for number, controllers, path in (line.split(":", 2) for line in lines_of(root + "proc/self/cgroup")):
        if number == "0":
            files.append("sys/fs/cgroup%s/memory.events" % path)
        elif "memory" in controllers.split(","):
            files.append("sys/fs/cgroup/memory%s/memory.oom_control" % path)
    files.append("proc/vmstat")
    for name in files:
        for line in lines_of(root + name):
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def lines_of(path: str) -> List[str]:
    try:
        with open(path) as stream:
            return stream.read().splitlines()
    except OSError:
        return []


def own_variables(known: Mapping[str, str]) -> Dict[str, str]:
    """The interface on the way to MASTER_ADDR, for gloo: it takes what the host's own name means, often 127.0.1.1."""
    peer = known.get("MASTER_ADDR", "127.0.0.1")
    if peer.startswith("127.") or known.get("GLOO_SOCKET_IFNAME"):
        return {}
    name = interface(peer)
    return {"GLOO_SOCKET_IFNAME": name} if name else {}


def interface(peer: str) -> str:
    """The interface whose address `peer` sees; "" when that cannot be reported. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect((peer, 9))
        own = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address
                asked = struct.pack("256s", name.encode()[:15])
                if fcntl.ioctl(probe.fileno(), SIOCGIFADDR, asked)[20:24] == own:
                    return name
    return ""


def die_with_parent() -> None:
    """Between fork and exec: nothing keeps the program should this one be killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def watch(child: "subprocess.Popen[bytes]", woken: int, seconds: float) -> None:
    """Return when the program has ended, or must."""
    deadline = time.monotonic() + seconds
    while child.poll() is None:
        ready, _, _ = select.select([0, woken], [], [], max(deadline - time.monotonic(), 0.0))
        if woken in ready and set(os.read(woken, 512)) - {int(signal.SIGCHLD)}:
            return
        if 0 in ready:
            if not os.read(0, 4096):
                return
            deadline = time.monotonic() + seconds
        elif not ready:
            sys.stderr.write("ended: no sign of the controller came for %g s\n" % seconds)
            return


def end(number: int, patience: float) -> None:
    """Send a signal to all that descends from us, and wait until it has gone."""
    deadline = time.monotonic() + patience
    reported: Set[int] = set()
    while time.monotonic() < deadline:
        alive = descendants()
        if not alive:
            return
        for pid in alive - reported:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        reported |= alive
        time.sleep(0.02)


def descendants() -> Set[int]:
    """The numbers of all processes below this one that still run."""
    children: Dict[int, List[int]] = {}
    found: Set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open("/proc/%s/stat" % name) as stream:
            state, parent = stream.read().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(name))
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv))
