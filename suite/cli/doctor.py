"""`stagebench doctor`: what can be measured here, and what to do about the rest."""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suite.cli.say import say
from suite.cli.tables import Row, show, show_json
from suite.contracts.adapter import Adapter
from suite.contracts.case import Placement
from suite.contracts.launcher import Launcher, starters
from suite.errors import RequestError, Unavailable
from suite.plugins import adapters, launchers

if TYPE_CHECKING:
    from suite.processes.interpreters import Interpreter
    from suite.processes.trial import Look


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """What is ready on this machine, what is missing and how to get it; exits with 1 when no framework is ready."""
    found = examination()
    if as_json:
        show_json(found)
    else:
        _print(found)
    if not found["ready"]:
        raise typer.Exit(1)


def examination() -> dict[str, Any]:
    from suite.cli import data, host

    about = host.facts(Path.cwd())
    with ThreadPoolExecutor(about["cores"]) as pool:  # frameworks take seconds to start: side by side
        rows = list(pool.map(partial(adapter_state, gpus=about["gpus"]), adapters().values()))
    return {
        "ready": any(row["ready"] for row in rows if row["framework"]),
        "adapters": rows,
        "launchers": [launcher_state(launcher, rows) for launcher in launchers().values()],
        "data": data.sets(),
        "host": about,
        "warnings": host.warnings(about),
    }


def adapter_state(adapter: Adapter, gpus: list[str]) -> Row:
    """Ready or not, which interpreter, what was tried, the remedy; `gpus` are those of this machine."""
    from suite.processes.interpreters import MissingRequirement, find, survey
    from suite.processes.trial import look

    state: Row = {
        "name": adapter.name,
        "title": adapter.title,
        "framework": adapter.environment is not None,  # the reference needs none and measures none
        "ready": False,
        "devices": [],
        "launchers": sorted({name for each in adapter.capabilities.strategies for name in starters(each, launchers())}),
        "tried": [
            {"path": str(candidate.path), "origin": candidate.origin, "problem": problem}
            for candidate, problem in survey(adapter)
        ],
    }
    try:
        interpreter = find(adapter)
    except MissingRequirement as error:  # its environment is there: making it again would not help
        return {**state, "missing": str(error), "remedy": str(error)}
    except Unavailable as error:
        return {**state, "missing": str(error), "remedy": adapter.remedy}
    except RequestError as error:  # an explicit setting that does not work: making an environment would not help
        return {**state, "missing": str(error), "remedy": None}
    found = look(adapter, interpreter, [name for name in adapter.capabilities.devices if name != "cuda" or gpus])
    return {
        **state,
        "ready": bool(found.devices),
        "devices": list(found.devices),
        "interpreter": str(interpreter.path),
        "origin": interpreter.origin,
        "python": interpreter.version,
        "packages": interpreter.packages,
        "versions": found.versions,
        "problems": found.problems,
        "formats": {form.name: adapter.unreadable(form) for form in adapter.capabilities.formats},
        **({} if found.devices else _stillborn(adapter, interpreter, found)),
    }


def _stillborn(adapter: Adapter, interpreter: "Interpreter", found: "Look") -> Row:
    """It is there and does not start. An interpreter that a person named is theirs to mend."""
    if not found.problems:
        kinds = ", ".join(adapter.capabilities.devices)
        return {"missing": f"{adapter.name} works on {kinds} only, and no GPU is seen here", "remedy": None}
    made = found.broken and interpreter.origin == f"tox environment {adapter.environment}"
    anew = adapter.remedy.replace("tox run -e", "tox run -r -e") if made else None  # -r: made anew
    return {"missing": f"{adapter.name} does not start: {_problems(found)}", "remedy": anew}


def _problems(found: "Look") -> str:
    return "; ".join(f"on {kind}: {reason}" for kind, reason in found.problems.items())


def launcher_state(launcher: Launcher, rows: list[Row]) -> Row:
    """For which of the ready adapters it can start two ranks here; engines stand beside an adapter's interpreter."""
    users = {row["name"]: row["interpreter"] for row in rows if row["ready"] and launcher.name in row["launchers"]}
    placement = Placement(ranks_per_node=2, launcher=launcher.name)
    problems = {
        name: launcher.missing(placement, Path(interpreter))
        for name, interpreter in (users or {"this Python": sys.executable}).items()
    }
    works = [name for name, problem in problems.items() if problem is None]
    missing = next((problem for problem in problems.values() if problem), None)
    return {
        "name": launcher.name,
        "title": launcher.title,
        "ready": bool(works),
        "for": works,
        "missing": problems,
        "remedy": None if works else missing,
    }


def _print(found: dict[str, Any]) -> None:
    rows = [
        {
            **row,
            "versions": [f"{name} {version}".strip() for name, version in row.get("versions", {}).items()],
            "interpreter": f"{row['interpreter']} ({row['origin']})" if row["ready"] else row["remedy"] or "see below",
        }
        for row in found["adapters"]
    ]
    show(rows, ("name", "ready", "python", "versions", "devices", "interpreter"), "Adapters (or how to get them)")
    say("")
    show(found["launchers"], ("name", "ready", "for", "title", "remedy"), "Launchers")
    say("")
    show(found["data"], ("name", "made", "path", "remedy"), "Data sets")
    say("")
    _print_host(found["host"])
    for row in found["adapters"]:
        problems = [row["missing"]] if not row["ready"] else [*row["problems"].values(), *_unreadable(row)]
        for problem in problems:
            say(f"- {problem}")
    for warning in found["warnings"]:
        say(f"- {warning}")


def _unreadable(row: Row) -> list[str]:
    return [f"{row['name']}, format {name}: {missing}" for name, missing in row["formats"].items() if missing]


def _print_host(host: dict[str, Any]) -> None:
    memory, free = host["memory_bytes"] / 2**30, host["memory_available_bytes"] / 2**30
    show(
        [
            {"what": "machine", "value": f"{host['host']}, {host['system']}, Python {host['python']}"},
            {"what": "cores", "value": f"{host['cores']} usable, {host['cores_physical'] or 'unknown'} physical"},
            {"what": "memory", "value": f"{memory:.1f} GiB, {free:.1f} available"},
            {"what": "load", "value": " ".join(map(str, host["load"]))},
            {"what": "clock governor", "value": host["clock_governor"] or "cannot be read"},
            {"what": "disk free here", "value": f"{host['disk_free_bytes'] / 1e9:.1f} GB"},
            {"what": "GPUs", "value": host["gpus"] or "none seen"},
        ],
        ("what", "value"),
        "Host",
    )
