"""Where a laboratory writes down that it exists.

FOLDER/NAME/
  lab.json     its layout and rate
  agent        the program that enters another host, used like ssh
  HOST.uts     mounts that keep the host's namespaces; the network's own lies in /run/netns
  HOST.ipc
  slurm/       the laboratory's own Slurm, where it has one
"""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ValidationError

from cluster.lab.layout import Layout, checked_name
from cluster.lab.rate import UNSHAPED
from cluster.slurm.private import Private
from suite.errors import RequestError
from suite.files import write_whole

FORMAT = 1
SETTING = "STAGEBENCH_LAB_FOLDER"
DEFAULT = "/run/stagebench"  # gone after a restart, as the namespaces are


class Kept(BaseModel, strict=True, extra="forbid"):
    """What lab.json says."""

    format: int
    name: str
    count: int
    network: str
    rate: str


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
        """The mounts that keep a host's other namespaces, by kind."""
        return {kind: self.folder / f"{host}.{kind}" for kind in ("uts", "ipc")}

    def save(self) -> None:
        kept = Kept(format=FORMAT, **asdict(self.layout), rate=self.rate)
        write_whole(file(self.folder), kept.model_dump_json(indent=1) + "\n")

    def at(self, rate: str) -> "State":
        """The same with other links."""
        return replace(self, rate=rate)


def file(folder: Path) -> Path:
    return folder / "lab.json"


def folder(name: str) -> Path:
    """A laboratory's folder, there or not."""
    return Path(os.environ.get(SETTING) or DEFAULT).absolute() / checked_name(name)


def load(name: str) -> State:
    """The laboratory of this name; RequestError when there is none."""
    path = file(folder(name))
    try:
        found = Kept.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        there = ", ".join(existing()) or "none"
        raise RequestError(
            f"there is no laboratory {name!r} (in {path.parent.parent}: {there}); make it with "
            f"`stagebench lab up 2 --name {name}`"
        ) from None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(("lab.json", *map(str, problem["loc"])))
        raise RequestError(f"{path.parent}: {where}: {problem['msg']}; remove the folder") from error
    if found.format != FORMAT:
        raise RequestError(f"{path} has format {found.format}, this stagebench reads format {FORMAT}")
    return State(Layout(found.name, found.count, found.network), found.rate)


def existing() -> Iterator[str]:
    for path in sorted(Path(os.environ.get(SETTING) or DEFAULT).glob("*/lab.json")):
        yield path.parent.name
