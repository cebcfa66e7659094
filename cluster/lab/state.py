"""A laboratory that exists: its folder, and how a person, with all variables, or an engine, as by ssh, enters a host.

FOLDER/NAME/
  lab.json     its layout and rate
  agent        the program that enters another host, used like ssh
  HOST.uts     mounts that keep the host's namespaces; the network's own lies in /run/netns
  HOST.ipc
  slurm/       the laboratory's own Slurm, where it has one
"""

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from stagebench.cluster.lab.network import SETTING as LABORATORY
from stagebench.cluster.lab.network import UNSHAPED, Layout, checked_name
from stagebench.cluster.logins import AGENT
from stagebench.cluster.slurm.private import Private
from stagebench.suite.errors import RequestError
from stagebench.suite.files import write_whole

FILE = "lab.json"
SETTING = "STAGEBENCH_LAB_FOLDER"
DEFAULT = "/run/stagebench"  # gone after a restart, as the namespaces are


@dataclass(frozen=True)
class State:
    """A laboratory that exists, whole or half built."""

    layout: Layout
    rate: str = UNSHAPED

    @property
    def folder(self) -> Path:
        return folder(self.layout.name)

    @property
    def agent(self) -> Path:
        """The program that enters a host."""
        return self.folder / "agent"

    @property
    def slurm(self) -> Private:
        """The Slurm over its hosts, which may not exist."""
        return Private(self.folder / "slurm")

    def kept(self, host: str) -> dict[str, Path]:
        """Return the mounts that keep a host's other namespaces, by kind."""
        return {kind: self.folder / f"{host}.{kind}" for kind in ("uts", "ipc")}

    def save(self) -> None:
        write_whole(self.folder / FILE, JSON.dump_json(self, indent=1) + b"\n")


JSON = TypeAdapter(State)  # the content of FILE


def folder(name: str) -> Path:
    """Return a laboratory's folder, which need not exist."""
    return Path(os.environ.get(SETTING) or DEFAULT).absolute() / checked_name(name)


def load(name: str) -> State:
    """Return the laboratory of this name; RequestError if it does not exist."""
    path = folder(name) / FILE
    try:
        return JSON.validate_json(path.read_bytes(), strict=True)
    except FileNotFoundError:
        there = ", ".join(sorted(each.parent.name for each in path.parent.parent.glob(f"*/{FILE}"))) or "none"
        raise RequestError(
            f"there is no laboratory {name!r} (in {path.parent.parent}: {there}); make it with "
            f"`stagebench lab up 2 --name {name}`"
        ) from None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join((FILE, *map(str, problem["loc"])))
        raise RequestError(f"{path.parent}: {where}: {problem['msg']}; remove the folder") from error


def entering(state: State, host: str, command: list[str]) -> list[str]:
    """Return the tokens that run a command in a host."""
    mounts = [f"--{kind}={path}" for kind, path in state.kept(host).items()]
    return ["ip", "netns", "exec", host, "nsenter", *mounts, "--", *command]


def environment(state: State) -> dict[str, str]:
    """Return our variables, and those by which a controller in a host finds the others."""
    return {
        **os.environ,
        AGENT: str(state.agent),
        LABORATORY: state.layout.name,
        SETTING: str(state.folder.parent),
        **state.slurm.environ,
    }
