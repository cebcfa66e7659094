"""The program that logs in to other hosts, and what it finds there.

Logins are those of ssh without a password, or of a program that is used like it:
PROGRAM HOST COMMAND.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from suite.processes.query import ask

AGENT = "STAGEBENCH_LAUNCH_AGENT"
# Never a question; a host that is not there, or no longer, is noticed within 15 seconds.
OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
SSH = ("ssh", *(token for option in OPTIONS for token in ("-o", option)), "--")  # a host is never an option
# Of a program that is used like ssh, PROGRAM [OPTIONS] HOST WORD ...: passes over the options, those that take a word
# with it; then $host is the host and $* are the words.
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


def login(host: str) -> tuple[str, ...]:
    """The tokens before a command that is to run on a host; the login's shell reads the command."""
    named = os.environ.get(AGENT)
    if not named:
        return (*SSH, host)
    return (os.path.abspath(named) if os.sep in named else named, host)


def unusable() -> str | None:
    """Why nobody can log in anywhere, with the remedy; None when the program is there."""
    program = login("")[0]
    if shutil.which(program):
        return None
    if os.environ.get(AGENT):
        return f"{AGENT} is {program!r}, which is no program here; name one that is used like ssh, or unset it"
    return f"there is no ssh on PATH to log in to other hosts with: apt-get install openssh-client, or set {AGENT}"


@cache
def missing(login: tuple[str, ...], quoted_python: str) -> str | None:
    """What a login finds missing on its host, with the remedy; None when all is there. Asked once a process."""
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
    last = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()[-1]
    return (
        f"no login on the host {host!r} ({Path(program).name} ended with exit code {done.returncode}: {last}); "
        f"`{shown}` must work without a question: correct the name, or let the host know your key"
    )
