"""How to enter a host: for a person with everything that is here, for an engine as ssh does."""

import os
import shlex

from cluster.lab.layout import SETTING as NAME
from cluster.lab.state import SETTING as FOLDER
from cluster.lab.state import State
from cluster.logins import AGENT, LIKE_SSH

# Used as `agent [OPTIONS] HOST COMMAND ...`: the words become one line for a shell, in a home, with the
# variables of a login and no others. What a launcher forgets to hand on is as absent as on a real cluster.
SCRIPT = """\
{like_ssh}[ -e {folder}/"$host.uts" ] || {{ echo "agent: $host is no host of the laboratory {name}" >&2; exit 255; }}
cd ~ 2>/dev/null || cd /
exec ip netns exec "$host" nsenter --uts={folder}/"$host.uts" --ipc={folder}/"$host.ipc" -- \\
    env -i HOME="$HOME" USER=root LOGNAME=root SHELL=/bin/sh PATH={path} /bin/sh -c "$*"
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # a login's


def write(state: State) -> None:
    text = SCRIPT.format(like_ssh=LIKE_SSH, folder=shlex.quote(str(state.folder)), name=state.layout.name, path=PATH)
    state.agent.write_text(text)
    state.agent.chmod(0o755)


def entering(state: State, host: str, command: list[str]) -> list[str]:
    """The tokens that run a command in a host."""
    mounts = [f"--{kind}={path}" for kind, path in state.kept(host).items()]
    return ["ip", "netns", "exec", host, "nsenter", *mounts, "--", *command]


def environment(state: State) -> dict[str, str]:
    """Our variables, and those by which a controller in a host finds the others."""
    return {
        **os.environ,
        AGENT: str(state.agent),
        NAME: state.layout.name,
        FOLDER: str(state.folder.parent),
        **state.slurm.environ,
    }
