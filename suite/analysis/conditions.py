"""Under which conditions a row was measured, and in which of them two rows differ, in words."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from suite.analysis.machines import limited
from suite.analysis.rows import Row
from suite.analysis.summary import summarise
from suite.contracts.case import Case, Sampling
from suite.errors import RequestError, StoreError
from suite.files import real
from suite.results.records import About, Host
from suite.results.run_folder import RunFolder

# What keeps two rows from being compared where it differs; a person may allow the latter two: they may be the question.
METHOD, ALLOWED = "method", ("machine", "knobs")
# What is named beside a comparison where it differs.
NAMED = ("versions", "code", "system", "sampling")

Conditions = Mapping[str, Mapping[str, str]]  # by kind and name


@dataclass(frozen=True)
class MeasuredRun:
    """A run folder, read."""

    path: Path  # as messages name it: a page knows it by its own folder
    about: About
    rows: tuple[Row, ...]
    hosts: Mapping[str, Host]

    @classmethod
    def read(cls, path: Path) -> "MeasuredRun":
        """RequestError for what is no run of trainings, or cannot be read: nothing is concluded then."""
        try:
            folder = RunFolder.open(path)
            return cls(path, folder.about, tuple(summarise(folder)), folder.hosts())
        except StoreError as error:
            raise RequestError(str(error)) from error

    @property
    def key(self) -> str:
        """Tells runs from each other; a copy of one is the same run."""
        return self.about.id or str(real(self.path))

    @cached_property
    def measured(self) -> dict[str, Row]:
        """The rows with a speed, by case id."""
        return {row.id: row for row in self.rows if row.rates}

    def conditions(self, row: Row) -> Conditions:
        """Of a row of this run; without what nobody kept."""
        kinds: dict[str, dict[str, Any]] = {
            METHOD: {"method": self.about.method},
            "machine": {},
            "knobs": row.case.knobs,
            "versions": {"stagebench": self.about.stagebench},
            "code": {"commit": self.about.commit},
            "system": {},
            "sampling": {**asdict(row.case.sampling), "passes": ", ".join(row.case.passes)},
        }
        for process in row.measured:
            about = process.about
            kinds["versions"] |= {"Python": about.interpreter.version, **about.interpreter.packages, **about.versions}
            kinds["code"]["adapter"] = about.bundle[:12]
            kinds["system"] |= {"hosts": ", ".join(about.hosts), "transport": about.transport}
            for name in about.hosts:
                _of_host(self.hosts.get(name), kinds)
        return {
            kind: {name: str(value) for name, value in values.items() if value not in (None, "", ())}
            for kind, values in kinds.items()
        }


def _of_host(host: Host | None, kinds: dict[str, dict[str, Any]]) -> None:
    if host is None:
        return
    gpus = ", ".join(gpu.partition(" (")[0] for gpu in host.gpus)  # without what tells one from another of its model
    kinds["machine"] |= {"CPU": host.cpu, "cores": host.cores, "GPUs": gpus, "CPU quota": host.cpu_quota}
    memory = f"{host.memory_bytes / 2**30:.0f} GiB" if host.memory_bytes else None
    system = {"memory": memory, "kernel": host.kernel, "governor": host.governor, "OS": host.os}
    kinds["system"] |= {**system, "GPU driver": host.gpu_driver, "GPU limits": limited(host, "cuda")}


def differing(before: Conditions, after: Conditions, kinds: Collection[str]) -> list[str]:
    """In which of these kinds two rows differ, in words; what one of them did not keep is no difference."""
    return [
        f"{kind}: {name} {value} → {after[kind][name]}" if name != kind else f"{kind} {value} → {after[kind][name]}"
        for kind in kinds
        for name, value in before[kind].items()
        if after[kind].get(name, value) != value
    ]


def others(allowed: Collection[str]) -> list[str]:
    """The kinds that are named, and bar nothing."""
    return [*allowed, *NAMED]


def barring(allowed: Collection[str]) -> list[str]:
    """The kinds that bar a comparison; RequestError where something cannot be allowed."""
    for kind in allowed:
        if kind not in ALLOWED:
            raise RequestError(f"--across {kind!r}: what may differ is {' or '.join(ALLOWED)}; name one")
    return [kind for kind in (METHOD, *ALLOWED) if kind not in allowed]


def same_but_sampling(case: Case) -> Case:
    """The case with how, and on which hosts, it was measured forgotten."""
    place = replace(case.placement, hosts=())
    return replace(case, placement=place, sampling=Sampling(), passes=(), time_limit=0.0, silence_limit=0.0)


def same_but_knobs(case: Case) -> Case:
    """The case with its knobs forgotten, too."""
    return replace(same_but_sampling(case), knobs={})
