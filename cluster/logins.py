"""Logins on other hosts: the program that logs in, what it finds there, and how a login ends what it started.

Logins are those of ssh without a password, or of a program that is used like it: PROGRAM HOST COMMAND.

An engine or a controller that was killed, or whose link was cut, leaves its ranks on other hosts behind: they wait for
it. So a login is a lifeline with a guard (`stagebench.suite.worker.guard`) at each end, and what runs behind the far
one ends when nothing comes through the login any more.
"""

import os
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from stagebench.suite.contracts.engine_messages import FILE
from stagebench.suite.contracts.launcher import LOGINS, Request
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.processes.query import UNSET, ask, last_words
from stagebench.suite.worker import guard

AGENT = "STAGEBENCH_LAUNCH_AGENT"
# Never a question; a host that does not exist, or is lost, is noticed within 15 seconds.
OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
SSH = ("ssh", *(token for option in OPTIONS for token in ("-o", option)), "--")  # a host is never an option
# The start of a program that is used like ssh, PROGRAM [OPTIONS] HOST WORD ...: it passes over the options, and the
# words that some of them take; then $host is the host and $* are the words.
LIKE_SSH = """\
#!/bin/sh
while [ "${1#-}" != "$1" ]; do
    case "$1" in -[bceFiIJlLmoOpQRSwW]) shift ;; esac
    shift
done
host="$1"
shift
"""
SECONDS = 30.0  # for a login that only looks

READY, MISSING = "stagebench: ready", "stagebench: missing"
LOOK = f"if test -x {{python}}; then echo {READY}; else echo {MISSING}; fi"

BEAT, SILENCE = 5.0, 20.0  # seconds between two signs of life, and without any before a host ends its ranks
POLITE = 1.5  # seconds between SIGTERM and SIGKILL on the other host; the near end waits for 3
GUARD, LOGIN = "guard.py", "login"  # files in the attempt's folder

# Engines say: login [OPTIONS] HOST WORD ...; like ssh's, the words are one line for the other host's shell.
DAEMON_LOGIN = """\
{like_ssh}line=$(printf '%s' "$*" | sed "s/'/'\\\\\\\\''/g")
{file} exec {near} {login} "$host" {far}" sh -c '{unset}; $line'"
"""


def login(host: str) -> tuple[str, ...]:
    """Return the tokens before a command that is to run on a host; the login's shell reads the command."""
    named = os.environ.get(AGENT)
    if not named:
        return (*SSH, host)
    return (os.path.abspath(named) if os.sep in named else named, host)


def check_program() -> None:
    """Unavailable, with the remedy, if the program that logs in is not on this machine."""
    program = login("")[0]
    if shutil.which(program):
        return
    raise Unavailable(
        f"{AGENT} is {program!r}, which is no program here; name one that is used like ssh, or unset it"
        if os.environ.get(AGENT)
        else f"there is no ssh on PATH to log in to other hosts with: apt-get install openssh-client, or set {AGENT}"
    )


@cache
def missing(login: tuple[str, ...], quoted_python: str) -> str | None:
    """Return what a login finds missing on its host, with the remedy; None if nothing is. Asked once a process."""
    host, program = login[-1], login[0]
    shown = f"{program}{' -o BatchMode=yes' if program == SSH[0] else ''} {host} true"
    try:
        done = ask([*login, LOOK.format(python=quoted_python)], SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no login on the host {host!r}: {error}; `{shown}` must work without a question"
    if READY in done.stdout:
        return None
    if MISSING in done.stdout:
        return (
            f"the host {host!r} has no interpreter {quoted_python}: environments must lie at the same path on every "
            "host; share their folder, or make the environment there too"
        )
    ended = f"{Path(program).name} ended with exit code {done.returncode}: {last_words(done)}"
    return (
        f"no login on the host {host!r} ({ended}); "
        f"`{shown}` must work without a question: correct the name, or let the host know your key"
    )


def near_end() -> tuple[str, ...]:
    """Return the tokens before a login's own, on this host."""
    return (sys.executable, "-I", "-S", guard.__file__, f"--login={BEAT:g}")


def far_end(request: Request) -> tuple[str, ...]:
    """Return the tokens before a program's own, on another host that sees the attempt's folder."""
    options = (f"--lifeline={SILENCE:g}", f"--patience={POLITE:g}", f"--left={POLITE:g}")
    report = f"--report={request.folder / FILE}"
    return (str(request.interpreter), "-I", "-S", "-B", str(request.folder / GUARD), *options, report)


def write_guard(request: Request, proof: str = "") -> None:
    """Write the far end's guard to the attempt's folder; by its first line, a host proves that it sees this folder."""
    (request.folder / GUARD).write_text(f"# {proof}\n{Path(guard.__file__).read_text()}")


def write_daemon_login(request: Request) -> Path:
    """Write the program by which an MPI's engine starts its daemons on other hosts, and return its path.

    RequestError if an engine would take the path apart.
    """
    path = request.folder / LOGIN
    if any(letter in str(path) for letter in " :\t"):  # Open MPI's own signs
        raise RequestError(f"{path} holds a blank or a colon, which mpiexec takes apart; name another folder with -o")
    write_guard(request)
    path.write_text(
        DAEMON_LOGIN.format(
            like_ssh=LIKE_SSH,
            file=f"{guard.LOGINS}={shlex.quote(str(request.folder / LOGINS))}",
            near=shlex.join(near_end()),
            login=shlex.join(login("")[:-1]),
            unset=UNSET,
            far=shlex.quote(shlex.join(far_end(request))),
        )
    )
    path.chmod(0o755)
    return path
