"""What the commands of `stagebench data` are given: a set, a workload that takes it, interpreters; and a bar."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from suite.cli.say import say
from suite.errors import RequestError, Unavailable

if TYPE_CHECKING:
    from suite.contracts.adapter import Adapter
    from suite.processes.interpreters import Interpreter
    from workloads.catalogue import Workload


def source_of(data: str) -> Path:
    """Where a set stands, by its name or its path; RequestError with the remedy when it does not."""
    from suite.data.sets import SETS, made
    from suite.files import expanded, stands
    from suite.suggest import known, shown

    if data in SETS:
        found = made(data)
        if found is None:
            raise RequestError(f"the data set {data!r} is not there or not complete; get it: {SETS[data].remedy}")
        return found
    path = expanded(data).absolute()
    if not stands(path):
        raise RequestError(f"there is no data set {shown(data)}, no such file or folder ({path}); {known(data, SETS)}")
    return path


def full_name(data: str) -> str:
    """A named set's name, the full path of another: what a plan's data are resolved to."""
    from suite.data.sets import SETS
    from suite.files import expanded

    return data if data in SETS else str(expanded(data).absolute())


def workload_for(data: str, asked: str | None) -> "Workload":
    """The workload asked for, or the smallest that takes the set; RequestError says why none does."""
    from suite.data.compatibility import fit
    from suite.plugins import workloads
    from suite.suggest import chosen

    refused, names = [], chosen("workload", [] if asked is None else [asked], workloads())
    for workload in sorted((workloads()[name] for name in names), key=lambda each: each.graph().parameter_count):
        found = fit(data, workload.dataset, workload.graph(), Path.cwd())
        if found.outcome is None:
            return workload
        refused.append(found.reason)
    raise RequestError(f"no workload takes {data!r}: {'; '.join(dict.fromkeys(refused))}; name another data set")


def interpreter_for(adapter: "Adapter", settings: dict[str, str], asked: bool) -> "Interpreter | None":
    """Its interpreter; without one, an adapter that was not asked for is named and skipped."""
    from suite.processes.interpreters import find

    try:
        return find(adapter, settings)
    except Unavailable as error:
        if asked:
            raise
        say(f"{adapter.name} is skipped: {error}", err=True)
        return None


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that takes how many are done: a bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)
