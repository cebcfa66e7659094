"""Options that several commands share, checked: interpreters, hosts, knobs, a data set and a workload that takes it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.cli.output import say
from suite.errors import RequestError, Unavailable

if TYPE_CHECKING:
    from suite.contracts.adapter import Adapter
    from suite.processes.interpreters import Interpreter
    from workloads.catalogue import Workload


def interpreters_from(options: list[str]) -> dict[str, str]:
    """Read `--python NAME=PATH` options; RequestError for a malformed one, an unknown name or a broken interpreter."""
    from suite.plugins import adapters
    from suite.processes.interpreters import find

    settings = {}
    for option in options:
        name, equals, path = option.partition("=")
        if not equals or not path:
            example = next(iter(adapters()), "NAME")
            raise RequestError(f"--python {option!r} should read NAME=PATH, such as {example}=.venv/bin/python")
        if name not in adapters():
            raise RequestError(f"--python {option!r} names no adapter; known: {', '.join(adapters())}")
        settings[name] = path
        find(adapters()[name], settings)
    return settings


def hosts_from(option: str | None) -> list[str]:
    """Read `--hosts A,B,...`; RequestError for a host that is empty or named twice."""
    from suite.processes.hosts import refused

    if option is None:
        return []
    hosts = [host.strip() for host in option.split(",")]
    if not all(hosts) or len(set(hosts)) < len(hosts):
        raise RequestError(f"--hosts {option!r} should read A,B,...: every host once, none empty")
    for problem in filter(None, map(refused, hosts)):
        raise RequestError(f"--hosts: {problem}")
    return hosts


def knobs_from(options: list[str]) -> dict[str, Any]:
    """Read `--knob NAME=VALUE` options; values are written as in a plan, and commas make a list."""
    from suite.plan.overrides import value_of

    knobs = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise RequestError(f"--knob {option!r} should read NAME=VALUE, such as schedule=1f1b")
        knobs[name] = value_of(value)
    return knobs


def source_of(data: str) -> Path:
    """Return the path of a data set, given by its name or its path; RequestError with the remedy if it is missing."""
    from suite.data.sets import SETS, made
    from suite.files import expanded, stands
    from suite.text import known, shown

    if data in SETS:
        made_at = made(data)
        if made_at is None:
            raise RequestError(f"the data set {data!r} is not there or not complete; get it: {SETS[data].remedy}")
        return made_at
    path = expanded(data).absolute()
    if not stands(path):
        raise RequestError(f"there is no data set {shown(data)}, no such file or folder ({path}); {known(data, SETS)}")
    return path


def full_name(data: str) -> str:
    """Return the form in which cases keep a data set: the name of a known one, the full path of any other."""
    from suite.data.sets import SETS
    from suite.files import expanded

    return data if data in SETS else str(expanded(data).absolute())


def workload_for(data: str, asked: str | None) -> "Workload":
    """Return the workload asked for, or the smallest that takes the data set; RequestError if none does."""
    from suite.data.compatibility import fit
    from suite.plugins import workloads
    from suite.text import chosen

    refused, names = [], chosen("workload", [] if asked is None else [asked], workloads())
    for workload in sorted(
        (workloads()[name] for name in names), key=lambda workload: workload.graph().parameter_count
    ):
        fitting = fit(data, workload.dataset, workload.graph(), Path.cwd())
        if fitting.outcome is None:
            return workload
        refused.append(fitting.reason)
    raise RequestError(f"no workload takes {data!r}: {'; '.join(dict.fromkeys(refused))}; name another data set")


def interpreter_for(adapter: "Adapter", settings: dict[str, str], asked: bool) -> "Interpreter | None":
    """Return an adapter's interpreter; None, with a line on stderr, if it has none and was not `asked` for."""
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
    """Draw a bar if stderr is a terminal; yields a function that takes the number done so far."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)
