"""The program by which an MPI's engine starts its daemons on other hosts: a login that ends them with it.

An engine that was killed, or whose link was cut, leaves daemons and ranks behind: they wait for it. So its
login is a lifeline (`cluster/lifeline.py`), and what it runs there ends when nothing comes through it any more.
"""

import shlex
import sys
from pathlib import Path

from cluster import lifeline, remote
from cluster.agent import LIKE_SSH, login
from suite.contracts.launcher import LOGINS, Request
from suite.errors import RequestError

BEAT, PATIENCE = 5.0, 20.0  # seconds between two signs of life, and without any before a host ends its ranks
LOGIN, REMOTE = "login", "remote.py"  # in the attempt's folder

# Engines say: login [OPTIONS] HOST WORD ...; like ssh's, the words are one line for the other host's shell.
SCRIPT = """\
{like_ssh}line=$(printf '%s' "$*" | sed "s/'/'\\\\\\\\''/g")
{file} exec {lifeline} {login} "$host" {remote}" sh -c '$line'"
"""


def written(request: Request) -> Path:
    """Write the program for a request; its path. RequestError when an engine would take the path apart."""
    path, code = request.folder / LOGIN, request.folder / REMOTE
    if any(letter in str(path) for letter in " :\t"):  # Open MPI's own signs
        raise RequestError(f"{path} holds a blank or a colon, which mpiexec takes apart; name another folder with -o")
    code.write_text(Path(remote.__file__).read_text())
    near = (sys.executable, "-I", "-S", lifeline.__file__, f"{BEAT:g}")
    far = (str(request.interpreter), "-I", "-S", "-B", str(code), f"{PATIENCE:g}")
    path.write_text(
        SCRIPT.format(
            like_ssh=LIKE_SSH,
            file=f"{lifeline.FILE}={shlex.quote(str(request.folder / LOGINS))}",
            lifeline=shlex.join(near),
            login=shlex.join(login("")[:-1]),
            remote=shlex.quote(shlex.join(far)),
        )
    )
    path.chmod(0o755)
    return path
