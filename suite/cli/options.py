"""Options that several commands share, checked: interpreters, hosts, knobs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from stagebench.suite.errors import RequestError
from stagebench.suite.plugins import adapters, model_servers

REPORT_FOLLOWS = "a report follows"  # the object of a command's context, if its caller writes the report

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Pythons = Annotated[list[str] | None, typer.Option(help="NAME=PATH: an adapter's interpreter.")]
OfRun = Annotated[Path | None, typer.Option("-o", "--output", help="Run folder; an existing one is resumed.")]
Retry = Annotated[bool, typer.Option("--retry", help="Measure again what failed or was unavailable.")]


def interpreters_from(options: list[str]) -> dict[str, str]:
    """Read `--python NAME=PATH` options; RequestError for a malformed one, an unknown name or a broken interpreter."""
    from stagebench.suite.processes.interpreters import Needs, find

    settings = {}
    for option in options:
        name, equals, path = option.partition("=")
        if not equals or not path:
            example = next(iter(adapters()), "NAME")
            raise RequestError(f"--python {option!r} should read NAME=PATH, such as {example}=.venv/bin/python")
        known: dict[str, Needs] = {**adapters(), **model_servers()}
        if name not in known:
            raise RequestError(f"--python {option!r} names no adapter and no model server; known: {', '.join(known)}")
        settings[name] = path
        find(known[name], settings)
    return settings


def hosts_from(option: str | None) -> list[str]:
    """Read `--hosts A,B,...`; RequestError for a host that is empty or named twice."""
    from stagebench.suite.processes.hosts import refused

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
    from stagebench.suite.plan.overrides import value_of

    knobs = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise RequestError(f"--knob {option!r} should read NAME=VALUE, such as schedule=1f1b")
        knobs[name] = value_of(value)
    return knobs
