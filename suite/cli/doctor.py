"""`stagebench doctor`: the adapters, launchers and data sets that work here, and the remedy for the others."""

import os
import platform
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stagebench.suite.cli.data import sets
from stagebench.suite.cli.listing import problem_of
from stagebench.suite.cli.options import Json
from stagebench.suite.cli.output import Row, say, show_json, show_rows
from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.launcher import Launcher, starters
from stagebench.suite.contracts.model_server import ModelServer
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.plugin_errors import ask
from stagebench.suite.plugins import adapters, launchers, model_servers
from stagebench.suite.worker.haproxy import NO_HAPROXY, haproxy

if TYPE_CHECKING:
    from stagebench.suite.processes.interpreters import Interpreter
    from stagebench.suite.processes.single import Look


LEAST_SHARED = 512 << 20  # bytes of /dev/shm; containers have 64 MiB if nothing asks for more


def doctor(as_json: Json = False) -> None:
    """Show what is ready on this machine, and how to get the rest; exits with 1 when no framework is ready."""
    about = host_facts(Path.cwd())
    with ThreadPoolExecutor(about["cores"]) as pool:  # frameworks take seconds to start
        rows = list(pool.map(partial(adapter_state, gpus=about["gpus"]), adapters().values()))
    state = {
        "ready": any(row["ready"] for row in rows if row["framework"]),
        "adapters": rows,
        "launchers": [launcher_state(launcher, rows) for launcher in launchers().values()],
        "model_servers": [*map(model_server_state, model_servers().values()), haproxy_state()],
        "data": sets(),
        "host": about,
        "warnings": host_warnings(about),
    }
    if as_json:
        show_json(state)
    else:
        _print(state)
    if not state["ready"]:
        raise typer.Exit(1)


def adapter_state(adapter: Adapter, gpus: list[str]) -> Row:
    """Return whether an adapter is ready, its interpreter, the ones tried, the remedy; `gpus` are this machine's."""
    from stagebench.suite.processes.interpreters import MissingRequirement, command_of, find, survey
    from stagebench.suite.processes.single import look

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
        formats = {form.name: ask(adapter, "unreadable", form) for form in adapter.capabilities.formats}
    except MissingRequirement as error:  # its environment exists: making it again would not help
        return {**state, "missing": str(error), "remedy": str(error)}
    except Unavailable as error:
        return {**state, "missing": str(error), "remedy": command_of(adapter)}
    except RequestError as error:  # of an explicit setting, or of the adapter itself: another environment is no help
        return {**state, "missing": str(error), "remedy": None}
    trial = look(adapter, interpreter, [name for name in adapter.capabilities.devices if name != "cuda" or gpus])
    return {
        **state,
        "ready": bool(trial.devices),
        "devices": list(trial.devices),
        "interpreter": str(interpreter.path),
        "origin": interpreter.origin,
        "python": interpreter.version,
        "packages": interpreter.packages,
        "versions": trial.versions,
        "problems": trial.problems,
        "formats": formats,
        **({} if trial.devices else _start_failure(adapter, interpreter, trial)),
    }


def _start_failure(adapter: Adapter, interpreter: "Interpreter", trial: "Look") -> Row:
    """Describe an installed adapter that fails to start; the remedy makes anew only an environment that was made."""
    if not trial.problems:
        kinds = ", ".join(adapter.capabilities.devices)
        return {"missing": f"{adapter.name} works on {kinds} only, and no GPU is seen here", "remedy": None}
    from stagebench.suite.processes.interpreters import MAKE

    anew = {
        f"tox environment {adapter.environment}": f"tox run -r -e {adapter.environment}",
        f"{MAKE} {adapter.environment}": f"{MAKE} --again {adapter.environment}",
    }.get(interpreter.origin if trial.broken else "")
    problems = "; ".join(f"on {kind}: {reason}" for kind, reason in trial.problems.items())
    return {"missing": f"{adapter.name} does not start: {problems}", "remedy": anew}


def launcher_state(launcher: Launcher, rows: list[Row]) -> Row:
    """Return the ready adapters for which a launcher can start two ranks; its engine may be in their environments."""
    users = {row["name"]: row["interpreter"] for row in rows if row["ready"] and launcher.name in row["launchers"]}
    placement = Placement(ranks_per_node=2, launcher=launcher.name)
    problems: dict[str, str | None] = {}
    for name, interpreter in (users or {"this Python": sys.executable}).items():
        try:
            problems[name] = ask(launcher, "missing", placement, Path(interpreter))
        except RequestError as error:  # a mistake of one launcher is no other one's
            problems[name] = str(error)
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


def model_server_state(server: ModelServer) -> Row:
    """Return whether a model server is installed, and the command that makes its environment."""
    problem = problem_of(server)
    return {
        "name": server.name,
        "title": server.title,
        "ready": not problem,
        "missing": problem,
        "remedy": server.remedy,
    }


def haproxy_state() -> Row:
    """Return whether HAProxy is installed, which puts the model servers of several hosts behind one address."""
    missing = "" if haproxy() else NO_HAPROXY
    title, remedy = "HAProxy, for several hosts' servers", "apt-get install haproxy"
    return {"name": "haproxy", "title": title, "ready": not missing, "missing": missing, "remedy": remedy}


def _print(state: dict[str, Any]) -> None:
    rows = [
        {
            **row,
            "version": next((f"{name} {version}" for name, version in row.get("versions", {}).items()), None),
            "from": re.sub("^(tox|.*env make)( .*)", r"\1", row["origin"]) if row["ready"] else "see below",
        }
        for row in state["adapters"]
    ]
    show_rows(rows, ("name", "ready", "python", "version", "devices", "from"), "Adapters")
    say("")
    ready = {row["name"] for row in state["adapters"] if row["ready"]}
    starting = [
        {**row, "for": "every ready adapter" if ready and ready == set(row["for"]) else row["for"]}
        for row in state["launchers"]
    ]
    show_rows(starting, ("name", "ready", "title", "for"), "Launchers")
    say("")
    show_rows(state["model_servers"], ("name", "ready", "title"), "Model servers")
    say("")
    show_rows(state["data"], ("name", "made", "path"), "Data sets")
    say("")
    host = state["host"]
    memory, free = host["memory_bytes"] / 2**30, host["memory_available_bytes"] / 2**30
    facts = {
        "machine": f"{host['host']}, {host['system']}, Python {host['python']}",
        "cores": f"{host['cores']} usable, {host['cores_physical'] or 'unknown'} physical",
        "memory": f"{memory:.1f} GiB, {free:.1f} available",
        "load": " ".join(map(str, host["load"])),
        "clock governor": host["clock_governor"] or "cannot be read",
        "disk free here": f"{host['disk_free_bytes'] / 1e9:.1f} GB",
        "GPUs": host["gpus"] or "none seen",
    }
    show_rows([{"what": what, "value": value} for what, value in facts.items()], ("what", "value"), "Host")
    for row in state["adapters"]:
        unreadable = [
            f"{row['name']}, format {name}: {missing}" for name, missing in row.get("formats", {}).items() if missing
        ]
        problems = [*row["problems"].values(), *unreadable] if row["ready"] else [row["missing"]]
        if row.get("remedy") and row["remedy"].partition("  #")[0] not in row["missing"]:
            problems.append(f"{row['name']}: {row['remedy']}")
        for problem in problems:
            say(f"- {problem}")
    remedies = [f"{row['name']}: {row['remedy']}" for row in (*state["launchers"], *state["data"]) if row["remedy"]]
    for words in (*remedies, *filter(None, (row["missing"] for row in state["model_servers"])), *state["warnings"]):
        say(f"- {words}")


def host_facts(folder: Path, root: Path | None = None) -> dict[str, Any]:
    """Return what this machine offers and how busy it is; None for a value that cannot be read.

    `folder` is where free disk space is looked up, `root` the kernel's folder of control groups for memory.
    """
    import psutil

    from stagebench.suite.processes import evidence
    from stagebench.suite.processes.hosts import this_machine
    from stagebench.suite.processes.query import not_handed_on
    from stagebench.suite.results.records import load
    from stagebench.suite.worker.machine import cores, memory

    here, room = this_machine(), memory()
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": cores(),
        "cores_physical": psutil.cpu_count(logical=False),
        "cpu_quota": here.cpu_quota,
        "memory_bytes": int(room.total),
        "memory_available_bytes": int(room.available),
        "oom_ends_all": evidence.ends_all(root or evidence.ROOT),
        "load": load(),
        "clock_governor": here.governor,
        "disk_free_bytes": shutil.disk_usage(folder).free,
        "gpus": here.gpus,
        "not_handed_on": not_handed_on(),
        "shared_memory_bytes": shutil.disk_usage(shared).total
        if (shared := Path("/dev/shm")).exists()
        else LEAST_SHARED,
    }


def host_warnings(facts: dict[str, Any]) -> list[str]:
    """Return the conditions that would disturb a measurement now, each with its remedy."""
    problems = []
    if facts["load"][0] > 0.3 * facts["cores"]:
        problems.append(f"the load is {facts['load'][0]} on {facts['cores']} cores: wait until it is idle")
    quota, mask = facts["cpu_quota"], len(os.sched_getaffinity(0))
    if quota is not None and quota < mask:
        problems.append(
            f"a control group allows the time of {quota:g} of {mask} cores and stops whoever has used it up: "
            "raise its limit (as a container, its limit of processors), or measure with fewer threads"
        )
    if facts["oom_ends_all"]:
        problems.append(
            "memory.oom.group is 1 in a control group: where memory runs out, the kernel ends stagebench together with "
            "what it measures; give cases a `memory_limit`, or write 0 there (as a container, in its kubelet's "
            "configuration: `singleProcessOOMKill: true`)"
        )
    if facts["clock_governor"] not in (None, "performance"):
        problems.append(f"the clock governor is {facts['clock_governor']!r}: `cpupower frequency-set -g performance`")
    if facts["disk_free_bytes"] < 2e9:
        problems.append(f"only {facts['disk_free_bytes'] / 1e9:.1f} GB of disk are free here; free some space")
    if facts["shared_memory_bytes"] < LEAST_SHARED:
        problems.append(
            f"/dev/shm has {facts['shared_memory_bytes'] / 1e6:.0f} MB, through which ranks and readers exchange data: "
            "start the container with --shm-size=2g (a pod: with a volume of memory there)"
        )
    return [*problems, *facts["not_handed_on"]]
